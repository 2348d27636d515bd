"""``python -m gem`` is ``gem-gym``."""

import sys

from gem.cli import main

sys.exit(main())
