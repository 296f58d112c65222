"""``python -m arenaplan``."""

import sys

from arenaplan.cli import main

sys.exit(main())
