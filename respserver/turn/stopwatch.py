"""Stage times of one turn, in milliseconds."""

from __future__ import annotations

import time


class Stopwatch:
    """Laps by stage; a stage that comes again adds up."""

    def __init__(self) -> None:
        self._started = self._last = time.perf_counter()
        self.milliseconds: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """The time since the last lap belongs to ``stage``."""
        now = time.perf_counter()
        self.milliseconds[stage] = self.milliseconds.get(stage, 0.0) + (now - self._last) * 1000
        self._last = now

    def first(self, stage: str) -> None:
        """How long after the start ``stage`` came for the first time; later calls change nothing."""
        if stage not in self.milliseconds:
            self.milliseconds[stage] = (time.perf_counter() - self._started) * 1000
