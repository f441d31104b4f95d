"""``python -m fedsim``, and the ``fedsim`` command; a Ctrl-C while Python imports is caught, too."""

import os
import sys
from importlib import import_module


def start() -> None:
    """Run the command line."""
    try:
        from fedsim import portable_numerics
        from fedsim.cli import main

        if "_FEDSIM_COMPLETE" in os.environ:  # a shell asks
            import_module("fedsim.cli.completion")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    try:
        main(prog_name="fedsim")
    except portable_numerics.FreshProcessError:
        portable_numerics.restart(sys.orig_argv)


if __name__ == "__main__":
    start()
