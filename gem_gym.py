"""Entry point of the command ``gem-gym``: outside the package, so that Ctrl-C while that loads is met too."""


def main() -> int:
    """Import the command line and run it; Ctrl-C during the import exits without a traceback."""
    try:
        from gem.cli import main as run
    except KeyboardInterrupt:
        return 130
    return run()
