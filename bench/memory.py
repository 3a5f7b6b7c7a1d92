"""What a process holds. Needs psutil (``pip install -e '.[test]'``)."""

from __future__ import annotations

import time

import psutil  # type: ignore[import-untyped]  # it brings no types

SETTLE_SECONDS = 0.2
"""How long what was just opened may take to be what it is when idle."""


def resident_bytes(pid: int) -> int:
    """The resident memory of a process, once it has settled."""
    time.sleep(SETTLE_SECONDS)
    size: int = psutil.Process(pid).memory_info().rss
    return size
