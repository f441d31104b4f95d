"""``python -m fedsim``: the same as the ``fedsim`` command."""

from fedsim.cli import main

if __name__ == "__main__":
    main(prog_name="fedsim")
