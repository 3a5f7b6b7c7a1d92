"""What does a turn cost on one of many lanes, and what is left to a neighbour of a connection whose lanes all talk?

The first rows are tool loops in shipped mode with 2 KB a turn, as in ``bench.turns``, sixteen turns at a time: one
after the other on one lane, at once on sixteen lanes of one connection, and at once on sixteen connections. ``cpu`` is
the server's time a turn, in microseconds, without the model's; ``all`` is from the first byte of the sixteen to the
last event of the last; ``x one lane`` compares CPU times within one round.

In the others everybody listens to answers without end, of a model that always has its next 64 tokens ready: one client
on one lane, and beside it another one on one lane, another one on sixteen lanes, sixteen others. ``its share`` is the
part of all bytes that the first client gets. Sixteen lanes of one connection should weigh as one.

    python -m bench.lanes [--rounds N] [--turns N] [--pause MICROSECONDS] [--json]
"""

from __future__ import annotations

import contextlib
import selectors
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from socket import socket

import msgspec

from bench.loops import MICROSECONDS, PAUSE_US, Base, Created, make_base, outputs
from bench.measure import Figures, Goal, add, arguments, report, summary
from bench.model import TALKER
from bench.peers import RECEIVE_BYTES, WebSocketPeer, connected
from bench.served import Served, serving

LANES = 16
ONE, LANED, APART = "one lane", f"{LANES} lanes", f"{LANES} connections"
OTHERS = {ONE: [1], LANED: [LANES], APART: [1] * LANES}
"""Beside whom a client listens: the lanes of each of the other connections."""
SHARE = 45.0
WARM_SECONDS, LISTEN_SECONDS = 0.1, 0.3


class Bench:
    """The figures, and how much is done for them."""

    def __init__(self, served: Served, turns: int, pause: int) -> None:
        self.figures: Figures = {}
        self._served = served
        self._turns = turns
        self._pause = pause / MICROSECONDS
        self._base = make_base(served, 0)

    def round(self) -> None:
        """Measure everything once."""
        spent = {ONE: self._turns_on([LANES], at_once=False), LANED: self._turns_on([LANES]),
                 APART: self._turns_on([1] * LANES)}  # fmt: skip
        for row, (cpu, took) in spent.items():
            add(self.figures, row, "cpu us", *cpu)
            add(self.figures, row, "all us", *took)
            add(self.figures, row, "x one lane", statistics.median(cpu) / statistics.median(spent[ONE][0]))
        for name, others in OTHERS.items():
            add(self.figures, _beside(name), "its share %", 100 * self._share(others))

    def goals(self) -> list[Goal]:
        """What must be reached, by medians."""
        share = summary(self.figures[_beside(LANED)]["its share %"])["median"]
        return [Goal(f"beside {LANED}: % of all", share, SHARE, is_least=True)]

    def _turns_on(self, connections: Sequence[int], *, at_once: bool = True) -> tuple[list[float], list[float]]:
        """Sixteen turns, some times: CPU microseconds of a turn, and microseconds for all."""
        cpu, took = [], []
        with contextlib.ExitStack() as stack:
            loops = self._loops(stack, connections)
            for _ in range(2 + self._turns // LANES):
                texts = outputs(LANES)
                before, began = self._served.spent(), time.perf_counter()
                for number, text in enumerate(texts):
                    loops[number if at_once else 0].send(text)
                    if not at_once:
                        loops[0].hear(1)
                if at_once:
                    for first in {id(loop.peer): loop for loop in loops}.values():
                        first.hear(LANES // len(connections))
                took.append((time.perf_counter() - began) * MICROSECONDS)
                after = self._served.spent()
                cpu.append((after.total - before.total - after.model + before.model) * MICROSECONDS / LANES)
                time.sleep(self._pause)
        return cpu[2:], took[2:]

    def _loops(self, stack: contextlib.ExitStack, connections: Sequence[int]) -> list[LaneLoop]:
        loops: list[LaneLoop] = []
        for lanes in connections:
            peer = WebSocketPeer(stack.enter_context(connected(self._served.ports["shipped"])))
            beside: dict[str, LaneLoop] = {}
            for number in range(lanes):
                beside[f"lane-{number}"] = LaneLoop(peer, self._base, f"lane-{number}", beside)
            loops += beside.values()
        return loops

    def _share(self, others: Sequence[int]) -> float:
        """The part of all bytes that one lane gets beside other connections with so many lanes."""
        with contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            for number, lanes in enumerate([1, *others]):
                connection = stack.enter_context(connected(self._served.ports["shipped"]))
                peer = WebSocketPeer(connection)
                for lane in range(lanes):
                    create = {"type": "response.create", "model": TALKER, "store": False, "input": "go"}
                    peer.send(msgspec.json.encode({**create, "stream_id": f"lane-{lane}"}))
                selector.register(connection, selectors.EVENT_READ, number)
            _listen(selector, WARM_SECONDS)
            heard = _listen(selector, LISTEN_SECONDS)
        return heard[0] / heard.total()


class LaneLoop(Created):
    """A loop on a lane of its own; ``beside`` has the loops of its connection by the names of their lanes."""

    def __init__(self, peer: WebSocketPeer, base: Base, name: str, beside: dict[str, LaneLoop]) -> None:
        super().__init__(peer, base, type="response.create", store=False, stream_id=name)
        self.peer = peer
        self._beside = beside

    def send(self, text: str) -> None:
        """Answer the open call with this output, and wait for nothing."""
        self.peer.send(self.message(text))

    def hear(self, turns: int) -> None:
        """Wait until so many turns of the connection have ended."""
        for _ in range(turns):
            event = self.peer.hear_end()
            self._beside[msgspec.json.decode(event, type=_Event).stream_id].read(event)


class _Event(msgspec.Struct):
    stream_id: str


def _listen(selector: selectors.BaseSelector, seconds: float) -> Counter[int]:
    """Read what comes for a while: the bytes by connection."""
    heard: Counter[int] = Counter()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        for key, _ in selector.select(seconds):
            assert isinstance(key.fileobj, socket)
            heard[key.data] += len(key.fileobj.recv(RECEIVE_BYTES))
    return heard


def _beside(name: str) -> str:
    return f"one lane beside {name}"


def main() -> None:
    options = arguments(__doc__, rounds=7, turns=96, pause=PAUSE_US)
    with serving() as served:
        bench = Bench(served, options.turns, options.pause)
        for _ in range(options.rounds):
            bench.round()
    report(bench.figures, options, bench.goals())


if __name__ == "__main__":
    main()
