"""Entry point of the commands ``gem-gym`` and ``python -m gem``."""

import sys


def main() -> int:
    """Import the command line and run it; Ctrl-C during the import exits without a traceback."""
    try:
        from gem.cli import main as run
    except KeyboardInterrupt:
        return 130
    return run()


if __name__ == "__main__":
    sys.exit(main())
