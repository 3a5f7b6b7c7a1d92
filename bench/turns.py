"""What does the server spend on one turn of a tool loop in each way of serving it, and does what lies behind it matter?

Each turn brings the 2 KB output of a tool and is answered with the next tool call, on a real loopback connection to a
server in a process of its own (``served.py``), with 0 KB, 100 KB, 1 MB and 5 MB of history in front of the first turn:
WebSocket in shipped mode, the same with ``store:true``, WebSocket in prototype mode (appends within one rollout), HTTP
with ``previous_response_id``, HTTP with the full history in every request, and that without the cache of rendered
tokens. HTTP answers are streams. Beside them the echo of a message of the same size over WebSocket on the same stack.

Times are microseconds a turn. ``cpu`` is the server process's, all threads; ``tokenising`` and ``model`` are the shares
of the tokenizer and of the embedded model. ``first`` is from the last write to the first event received, ``end`` from
the first byte sent to the last one received, ``sent`` what the client sends. The ratios are of CPU time without
the model's: ``x echo``, without tokenising too, to the echo's; ``x empty`` to the same without history; ``x cached``
to the same with the cache. They compare within one round, and rounds are interleaved.
An append's first event is the model's, all others' is ``response.created``, which does not wait for the tokenizer.

    python -m bench.turns [--rounds N] [--turns N] [--most KB] [--pause MICROSECONDS] [--json]
"""

from __future__ import annotations

from bench.loops import (
    APPEND,
    CHAINED,
    ECHO,
    MICROSECONDS,
    PAUSE_US,
    RESENT,
    RESENT_UNCACHED,
    SHIPPED,
    STORED,
    Base,
    Block,
    make_base,
    run_block,
)
from bench.measure import Figures, Goal, add, arguments, report, summary
from bench.served import Served, serving

HISTORIES_KB = (0, 100, 1000, 5000)
WAYS = {
    "shipped": SHIPPED,
    "shipped, stored": STORED,
    "append": APPEND,
    "HTTP chained": CHAINED,
    "HTTP full": RESENT,
    "HTTP full, no cache": RESENT_UNCACHED,
}
GROWTH = 1.1
FIRST_EVENT_US = 500
CACHE_GAIN = 10
CACHE_GAIN_KB = 1000


class Bench:
    """The figures, and those of the round under way that others are compared with."""

    def __init__(self, served: Served, turns: int, pause: int) -> None:
        self.figures: Figures = {}
        self._served = served
        self._turns = turns
        self._pause = pause / MICROSECONDS

    def round(self, bases: dict[int, Base]) -> None:
        """Measure everything once; what is compared stands close together."""
        ours: dict[tuple[str, int], float] = {}
        for name in WAYS:
            echo = self._block("echo", bases[0])
            for kilobytes, base in bases.items():
                block = self._block(name, base, kilobytes)
                ours[name, kilobytes] = block.cpu - block.model
                row = _row(name, kilobytes)
                add(self.figures, row, "x echo", (block.cpu - block.model - block.tokenising) / echo.cpu)
                add(self.figures, row, "x empty", ours[name, kilobytes] / ours[name, 0])
        for kilobytes in bases:
            gain = ours["HTTP full, no cache", kilobytes] / ours["HTTP full", kilobytes]
            add(self.figures, _row("HTTP full, no cache", kilobytes), "x cached", gain)

    def goals(self, histories: list[int]) -> list[Goal]:
        """What must be reached, by medians, each at its worst history."""
        goals = [
            Goal(f"{name}: x empty, whatever is behind it", self._worst(name, "x empty", histories), GROWTH)
            for name in ("shipped", "append", "HTTP chained")
            if len(histories) > 1
        ]
        goals += [
            Goal(f"{name}: us to the first event", self._worst(name, "first us", histories), FIRST_EVENT_US)
            for name in ("shipped", "append")
        ]
        if CACHE_GAIN_KB in histories:
            gain = self._worst("HTTP full, no cache", "x cached", [CACHE_GAIN_KB])
            goals.append(Goal("HTTP full, no cache, 1 MB: x cached", gain, CACHE_GAIN, is_least=True))
        return goals

    def _worst(self, name: str, column: str, histories: list[int]) -> float:
        return max(summary(self.figures[_row(name, kilobytes)][column])["median"] for kilobytes in histories)

    def _block(self, name: str, base: Base, kilobytes: int | None = None) -> Block:
        """Measure some turns and note them; an echo is one row, whatever is behind it."""
        block = run_block(self._served, WAYS.get(name, ECHO), base, self._turns, self._pause)
        row = name if kilobytes is None else _row(name, kilobytes)
        add(self.figures, row, "cpu us", block.cpu)
        add(self.figures, row, "tokenising us", block.tokenising)
        add(self.figures, row, "model us", block.model)
        add(self.figures, row, "first us", *block.first)
        add(self.figures, row, "end us", *block.end)
        add(self.figures, row, "sent KB", *(size / 1e3 for size in block.sent))
        return block


def _row(name: str, kilobytes: int) -> str:
    return f"{name}, {kilobytes} KB"


def main() -> None:
    options = arguments(__doc__, rounds=9, turns=20, most=max(HISTORIES_KB), pause=PAUSE_US)
    histories = [kilobytes for kilobytes in HISTORIES_KB if kilobytes <= options.most]
    with serving() as served:
        bench = Bench(served, options.turns, options.pause)
        bases = {kilobytes: make_base(served, kilobytes) for kilobytes in histories}
        for _ in range(options.rounds):
            bench.round(bases)
    report(bench.figures, options, bench.goals(histories))


if __name__ == "__main__":
    main()
