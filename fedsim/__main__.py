"""``python -m fedsim``, and the ``fedsim`` command; a Ctrl-C while Python imports is caught, too."""

import os
from importlib import import_module


def start() -> None:
    """Run the command line."""
    try:
        from fedsim.cli import main

        if "_FEDSIM_COMPLETE" in os.environ:  # a shell asks
            import_module("fedsim.cli.completion")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    main(prog_name="fedsim")


if __name__ == "__main__":
    start()
