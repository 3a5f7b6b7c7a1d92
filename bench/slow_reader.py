"""What does the server hold for clients that stop reading in the middle of a long answer, and do others feel it?

Some clients ask for an answer without end over WebSocket, or as a stream over HTTP, read its first event and then
nothing. Once the server has come to rest, ``held`` is by how much its resident memory has grown for each of them, and
``bound`` is what may wait for one: ``--outbox-bytes``, in front of the socket, and over HTTP as much again in front of
the HTTP server, whose chunk is on its way. What the turn holds of its answer for its own ends comes on top.

Beside that, the ordinary turns of another connection: a tool loop with 2 KB a turn, over WebSocket in shipped mode;
before the others stop, while they stand, and after they have gone. Times are microseconds from the client's write
to the first event (``first``) and to the last one (``end``); ``x alone`` is ``end`` divided by that of the turns before
and after. Each round is a new process for each way.

    python -m bench.slow_reader [--rounds N] [--readers N] [--turns N] [--pause MICROSECONDS] [--json]

Needs psutil (``pip install -e '.[test]'``).
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable
from socket import socket
from typing import NamedTuple

import msgspec

from bench.loops import MICROSECONDS, PAUSE_US, SHIPPED, Base, make_base, run_block
from bench.measure import Figures, add, arguments, report
from bench.memory import resident_bytes
from bench.model import TALKER
from bench.peers import HttpPeer, Peer, WebSocketPeer, connected
from bench.served import LIMITS, Served, serving

ROOM_BYTES = 1 << 14
"""What the system keeps for a client that does not read: little, so that the server soon has to."""
REST_SECONDS = 0.1
REST_SHARE = 0.1
"""At rest, a process takes less than this share of the time."""
PATIENCE_SECONDS = 25.0
"""Less than ``--write-seconds``, after which the clients that have stopped are given up."""


class Way(NamedTuple):
    """How the clients ask that stop reading, and how many times ``--outbox-bytes`` may wait for one."""

    peer: Callable[[socket], Peer]
    request: dict[str, object]
    outboxes: int


WAYS = {
    "WebSocket": Way(WebSocketPeer, {"type": "response.create", "store": False, "input": "go"}, 1),
    "HTTP": Way(HttpPeer, {"stream": True, "store": False, "input": "go"}, 2),
}


class Bench:
    """The figures, and how much is done for them."""

    def __init__(self, readers: int, turns: int, pause: int) -> None:
        self.figures: Figures = {}
        self._readers = readers
        self._turns = turns
        self._pause = pause / MICROSECONDS

    def round(self) -> None:
        """Measure everything once."""
        for name, way in WAYS.items():
            with serving() as served:
                self._measure(served, name, way)

    def _measure(self, served: Served, name: str, way: Way) -> None:
        row = f"{self._readers} have stopped, {name}"
        base = make_base(served, 0)
        alone = self._turn_ends(served, base, "nobody stops")
        with contextlib.ExitStack() as connections:
            before = _resident_at_rest(served)
            for _ in range(self._readers):
                _stop_reading(connections, served, way)
            held = _resident_at_rest(served) - before
            beside = self._turn_ends(served, base, row)
        alone += self._turn_ends(served, base, "nobody stops")
        add(self.figures, row, "held KB", held / self._readers / 1e3)
        add(self.figures, row, "bound KB", way.outboxes * LIMITS.outbox_bytes / 1e3)
        add(self.figures, row, "x alone", statistics.median(beside) / statistics.median(alone))

    def _turn_ends(self, served: Served, base: Base, row: str) -> list[float]:
        """Run some ordinary turns, note their times and return those of their ends."""
        block = run_block(served, SHIPPED, base, self._turns, self._pause)
        add(self.figures, row, "first us", *block.first)
        add(self.figures, row, "end us", *block.end)
        return block.end


def _stop_reading(connections: contextlib.ExitStack, served: Served, way: Way) -> None:
    """Begin an answer without end on a new connection, and leave it there."""
    connection = connections.enter_context(connected(served.ports["shipped"], room=ROOM_BYTES))
    way.peer(connection).leave(msgspec.json.encode({**way.request, "model": TALKER}))


def _resident_at_rest(served: Served) -> int:
    """The server's memory, once it has nothing to do any more. Raises ``RuntimeError`` if it goes on making events."""
    until = time.monotonic() + PATIENCE_SECONDS
    share = 1.0
    while share > REST_SHARE:
        if time.monotonic() > until:
            raise RuntimeError("the server does not wait for clients that do not read")
        before, began = served.spent().total, time.monotonic()
        time.sleep(REST_SECONDS)
        share = (served.spent().total - before) / (time.monotonic() - began)
    return resident_bytes(served.pid)


def main() -> None:
    options = arguments(__doc__, rounds=7, readers=16, turns=100, pause=PAUSE_US)
    bench = Bench(options.readers, options.turns, options.pause)
    for _ in range(options.rounds):
        bench.round()
    report(bench.figures, options)


if __name__ == "__main__":
    main()
