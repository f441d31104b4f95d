"""``python -m fedsim``, and the ``fedsim`` command; a Ctrl-C while Python imports is caught, too."""


def start() -> None:
    """Run the command line."""
    try:
        from fedsim.cli import main
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    main(prog_name="fedsim")


if __name__ == "__main__":
    start()
