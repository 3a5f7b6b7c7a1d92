"""``python -m respserver``: the same as the command ``respserver``."""

from __future__ import annotations

import sys

from respserver.cli import main

if __name__ == "__main__":
    sys.exit(main())
