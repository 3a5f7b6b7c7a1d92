"""Tool loops on one connection, in each form that a client may give them, and what a block of their turns takes.

A turn brings the output of a tool and is answered with the next tool call. The requests are made before the clock runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count
from socket import socket
from typing import Any, NamedTuple

import msgspec

from bench.peers import Answer, HttpPeer, Peer, WebSocketPeer, connected
from bench.served import TOOL, Served
from bench.texts import tool_output

INPUT_BYTES = 2000
"""Of a tool's output: with the frame around it, 2 KB; the server still tokenises so much on its event loop."""
PAUSE_US = 1000
"""How long the client's tool works between two turns: no turn waits for what follows the one before, and none finds the
processor's caches warm. At 0 turns follow at once, and everything is cheaper, the echo most of all."""
PATIENCE_SECONDS = 2.0
"""No block takes more turns once this time is over: where one turn takes seconds, it has to do for the block."""
TOOLS = [{"type": "function", "name": TOOL, "parameters": {"type": "object", "properties": {"command": {}}}}]
MICROSECONDS = 1e6

Json = dict[str, Any]  # Any: JSON that goes out
_seeds = count()


class Response(msgspec.Struct):
    """What a loop needs of a response; its output as it came."""

    id: str
    output: list[msgspec.Raw]

    @property
    def call_id(self) -> str:
        return msgspec.json.decode(self.output[-1], type=_Call).call_id


class Base(NamedTuple):
    """A stored response with an open call, and the JSON of all items up to that call, as a client keeps them."""

    latest: Response
    items: bytes


class Created:
    """A create for each turn, with ``previous_response_id``."""

    def __init__(self, peer: Peer, base: Base, **fields: object) -> None:
        self.latest = base.latest
        self._peer = peer
        self._fields = {"model": "sim", "tools": TOOLS, **fields}

    def step(self, text: str) -> Answer:
        """Answer the open call with this output and wait for the next one."""
        answer = self._peer.ask(self.message(text))
        self.read(answer.last)
        return answer

    def message(self, text: str) -> bytes:
        fields = {**self._fields, "previous_response_id": self.latest.id, "input": [self.output(text)]}
        return msgspec.json.encode(fields)

    def output(self, text: str) -> Json:
        return {"type": "function_call_output", "call_id": self.latest.call_id, "output": text}

    def read(self, event: bytes) -> None:
        self.latest = msgspec.json.decode(event, type=_Event).response


class Appended(Created):
    """The same in prototype mode: one create, then appends."""

    _is_suspended = False

    def message(self, text: str) -> bytes:
        if self._is_suspended:
            return msgspec.json.encode({"type": "response.append", "input": [self.output(text)]})
        self._is_suspended = True
        return super().message(text)


class Resent(Created):
    """A create for each turn, with all items of the conversation."""

    def __init__(self, peer: Peer, base: Base, **fields: object) -> None:
        super().__init__(peer, base, **fields)
        self._items = bytearray(base.items)

    def message(self, text: str) -> bytes:
        self._items += b"," + msgspec.json.encode(self.output(text))
        return msgspec.json.encode(self._fields)[:-1] + b',"input":[' + self._items + b"]}"

    def read(self, event: bytes) -> None:
        super().read(event)
        self._items += b"".join(b"," + bytes(item) for item in self.latest.output)


class Echoed(Created):
    """The same messages as a create's, to somebody who sends them back."""

    def read(self, event: bytes) -> None:
        """It tells nothing new."""


class Way(NamedTuple):
    """Where turns go, over which transport, in which form, with which fields."""

    port: str
    peer: Callable[[socket], Peer]
    loop: type[Created]
    fields: Json


ECHO = Way("echo", partial(WebSocketPeer, echo=True), Echoed, {"type": "response.create", "store": False})
SHIPPED = Way("shipped", WebSocketPeer, Created, {"type": "response.create", "store": False})
STORED = Way("shipped", WebSocketPeer, Created, {"type": "response.create"})
APPEND = Way("prototype", WebSocketPeer, Appended, {"type": "response.create", "store": False})
CHAINED = Way("shipped", HttpPeer, Created, {"stream": True})
RESENT = Way("shipped", HttpPeer, Resent, {"stream": True, "store": False})
RESENT_UNCACHED = Way("uncached", HttpPeer, Resent, {"stream": True, "store": False})


class Block(NamedTuple):
    """What some turns took: CPU microseconds each on average, the microseconds of each, the bytes sent for each."""

    cpu: float
    tokenising: float
    model: float
    first: list[float]
    end: list[float]
    sent: list[int]


def make_base(served: Served, kilobytes: int) -> Base:
    """A stored response with so much input behind it."""
    texts = outputs(kilobytes * 1000 // INPUT_BYTES)
    items = [{"role": "user", "content": text} for text in texts or ["Begin."]]
    request = msgspec.json.encode({"model": "sim", "tools": TOOLS, "stream": True, "input": items})
    with connected(served.ports["shipped"]) as connection:
        last = HttpPeer(connection).ask(request).last
    latest = msgspec.json.decode(last, type=_Event).response
    return Base(latest, b",".join([*map(msgspec.json.encode, items), *map(bytes, latest.output)]))


def outputs(number: int) -> list[str]:
    """What tools print. Each text is given out once, so that no turn finds the words of another's."""
    return [tool_output(INPUT_BYTES, seed=next(_seeds)) for _ in range(number)]


def run_block(served: Served, way: Way, base: Base, turns: int, pause: float) -> Block:
    """Some turns on a new connection, after one that loads the history and two that find the processor's caches full of
    it; ``pause`` seconds after each."""
    with connected(served.ports[way.port]) as connection:
        loop = way.loop(way.peer(connection), base, **way.fields)
        for text in ("Loaded.", *outputs(2)):
            loop.step(text)
        texts = outputs(turns)
        time.sleep(pause)
        before = served.spent()
        answers = _answers(loop, texts, pause)
        after = served.spent()
    each = MICROSECONDS / len(answers)
    return Block(
        cpu=(after.total - before.total) * each,
        tokenising=(after.tokenising - before.tokenising) * each,
        model=(after.model - before.model) * each,
        first=[answer.first * MICROSECONDS for answer in answers],
        end=[answer.end * MICROSECONDS for answer in answers],
        sent=[answer.sent for answer in answers],
    )


class _Call(msgspec.Struct):
    call_id: str


class _Event(msgspec.Struct):
    response: Response


def _answers(loop: Created, texts: Iterable[str], pause: float) -> list[Answer]:
    answers = []
    until = time.monotonic() + PATIENCE_SECONDS
    for text in texts:
        answers.append(loop.step(text))
        time.sleep(pause)
        if time.monotonic() > until:
            break
    return answers
