"""Entry point of ``python -m gem``, and of ``gem-gym`` as older checkouts installed it."""

import sys

from gem_gym import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
