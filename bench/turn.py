"""What does the server spend on one turn of a tool loop, and does what lies behind it matter?

Each turn brings the 2 KB output of a tool and is answered with the next tool call, on a real loopback connection to a
server in a process of its own (``served.py``): shipped continuation, the same with ``store:true``, prototype append,
and chained JSON over HTTP; with 0 KB, 100 KB and 1 MB of history in front of the first turn. Beside them the echo of
a message of the same size on the same stack.

Times are microseconds a turn. ``cpu`` is the server process's, all threads, ``tokenising`` the tokenizer's share of it;
``first`` is from the first byte sent to the first received, ``end`` to the last. ``x echo`` is the CPU time without
tokenising, divided by the echo's; ``x empty`` is the CPU time divided by that without history. Both compare within one
round, and rounds are interleaved.
An append's first event is the model's, a create's is ``response.created``, which does not wait for the tokenizer.

    python -m bench.turn [--rounds N] [--turns N] [--most KB] [--pause MICROSECONDS] [--json]
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from socket import socket
from typing import Any, NamedTuple

import msgspec

from bench.measure import Figures, arguments, report
from bench.peers import Answer, HttpPeer, Peer, WebSocketPeer, connected
from bench.served import TOOL, Served, serving
from bench.texts import tool_output

INPUT_BYTES = 2000
"""Of a tool's output: with the frame around it, 2 KB; the server still tokenises so much on its event loop."""
HISTORIES_KB = (0, 100, 1000)
PAUSE_US = 1000
"""How long the client's tool works between two turns: no turn waits for what follows the one before, and none finds the
processor's caches warm. At 0 turns follow at once, and everything is cheaper, the echo most of all."""
TOOLS = [{"type": "function", "name": TOOL, "parameters": {"type": "object", "properties": {"command": {}}}}]
MICROSECONDS = 1e6

Json = dict[str, Any]  # Any: JSON that goes out, or comes back from a server that is trusted


class Latest(NamedTuple):
    """A response and its open call, which the next turn goes on from."""

    id: str
    call_id: str


class Created:
    """A tool loop on one connection, a create for each turn."""

    def __init__(self, peer: Peer, latest: Latest, **fields: object) -> None:
        self.latest = latest
        self._peer = peer
        self._fields = {"model": "sim", "tools": TOOLS, **fields}

    def step(self, text: str) -> Answer:
        """Answer the open call with this output and wait for the next one."""
        answer = self._peer.ask(msgspec.json.encode(self.request(text)))
        self.latest = self.read(answer.last)
        return answer

    def request(self, text: str) -> Json:
        return {**self._fields, "previous_response_id": self.latest.id, "input": [self.output(text)]}

    def output(self, text: str) -> Json:
        return {"type": "function_call_output", "call_id": self.latest.call_id, "output": text}

    def read(self, message: bytes) -> Latest:
        return latest_of(message)


class Appended(Created):
    """The same in prototype mode: one create, then appends."""

    _is_suspended = False

    def request(self, text: str) -> Json:
        if self._is_suspended:
            return {"type": "response.append", "input": [self.output(text)]}
        self._is_suspended = True
        return super().request(text)


class Echoed(Created):
    """The same messages as a create's, to somebody who sends them back."""

    def read(self, message: bytes) -> Latest:  # noqa: ARG002 - it tells nothing new
        return self.latest


class Way(NamedTuple):
    """Where turns go, over which transport, in which form, with which fields."""

    port: str
    peer: Callable[[socket], Peer]
    loop: type[Created]
    fields: Json


ECHO = Way("echo", partial(WebSocketPeer, echo=True), Echoed, {"type": "response.create", "store": False})
WAYS = {
    "shipped": Way("shipped", WebSocketPeer, Created, {"type": "response.create", "store": False}),
    "shipped, stored": Way("shipped", WebSocketPeer, Created, {"type": "response.create"}),
    "append": Way("prototype", WebSocketPeer, Appended, {"type": "response.create", "store": False}),
    "HTTP, chained": Way("shipped", HttpPeer, Created, {}),
}


class Block(NamedTuple):
    """What some turns took, in microseconds: CPU each on average, and the times of each."""

    cpu: float
    tokenising: float
    first: list[float]
    end: list[float]


class Bench:
    """The figures, and where the texts come from: each is sent once, so that no way finds the words of another's."""

    def __init__(self, served: Served, turns: int, pause: int) -> None:
        self.figures: Figures = {}
        self._served = served
        self._turns = turns
        self._pause = pause / MICROSECONDS
        self._seeds = count()

    def base(self, kilobytes: int) -> Latest:
        """A stored response with so much input behind it."""
        texts = [tool_output(INPUT_BYTES, seed=next(self._seeds)) for _ in range(kilobytes * 1000 // INPUT_BYTES)]
        items = [{"role": "user", "content": text} for text in texts or ["Begin."]]
        with connected(self._served.ports["shipped"]) as connection:
            request = {"model": "sim", "tools": TOOLS, "input": items}
            answer = HttpPeer(connection).ask(msgspec.json.encode(request))
        return latest_of(answer.last)

    def round(self, bases: dict[int, Latest]) -> None:
        """Measure everything once."""
        empty: dict[str, float] = {}
        for kilobytes, base in bases.items():
            echo = self._block(ECHO, base)
            self._note("echo", echo)
            for name, way in WAYS.items():
                block = self._block(way, base)
                row = f"{name}, {kilobytes} KB"
                self._note(row, block)
                self._add(row, "x echo", (block.cpu - block.tokenising) / echo.cpu)
                self._add(row, "x empty", block.cpu / empty.setdefault(name, block.cpu))

    def _block(self, way: Way, base: Latest) -> Block:
        """Some turns on a new connection, after one that loads the history."""
        with connected(self._served.ports[way.port]) as connection:
            loop = way.loop(way.peer(connection), base, **way.fields)
            loop.step("Loaded.")
            texts = list(self._texts())
            self._rest()
            before = self._served.spent()
            answers = [self._step(loop, text) for text in texts]
            after = self._served.spent()
        each = MICROSECONDS / len(texts)
        return Block(
            cpu=(after.total - before.total) * each,
            tokenising=(after.tokenising - before.tokenising) * each,
            first=[answer.first * MICROSECONDS for answer in answers],
            end=[answer.end * MICROSECONDS for answer in answers],
        )

    def _step(self, loop: Created, text: str) -> Answer:
        answer = loop.step(text)
        self._rest()
        return answer

    def _rest(self) -> None:
        if self._pause:
            time.sleep(self._pause)

    def _texts(self) -> Iterator[str]:
        for _ in range(self._turns):
            yield tool_output(INPUT_BYTES, seed=next(self._seeds))

    def _note(self, row: str, block: Block) -> None:
        self._add(row, "cpu", block.cpu)
        self._add(row, "tokenising", block.tokenising)
        self._add(row, "first", *block.first)
        self._add(row, "end", *block.end)

    def _add(self, row: str, column: str, *values: float) -> None:
        self.figures.setdefault(row, {}).setdefault(column, []).extend(values)


def latest_of(message: bytes) -> Latest:
    """What an event or a body shows as the latest response, whose last item is the open call."""
    event: Json = json.loads(message)
    response = event.get("response", event)
    return Latest(response["id"], response["output"][-1]["call_id"])


def main() -> None:
    options = arguments(__doc__, rounds=11, turns=20, most=max(HISTORIES_KB), pause=PAUSE_US)
    with serving() as served:
        bench = Bench(served, options.turns, options.pause)
        bases = {kilobytes: bench.base(kilobytes) for kilobytes in HISTORIES_KB if kilobytes <= options.most}
        for _ in range(options.rounds):
            bench.round(bases)
    report(bench.figures, options)


if __name__ == "__main__":
    main()
