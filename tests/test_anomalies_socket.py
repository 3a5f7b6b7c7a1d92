"""The Nth system call that writes to a client's socket goes wrong, for every N: it takes nothing, takes one byte, or
the peer is gone. What is only slow changes no byte of an answer; what is broken costs one request and nothing else."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from respserver.client import Client
from respserver.config import Mode
from respserver.engines.sim import Script, Sim, call
from respserver.errors import ConnectionLost
from respserver.schema.codec import encode
from respserver.services import bundled_template
from respserver.transport import outbox
from tests.support.live import Frame, calls_of, output, text_of, tool
from tests.support.raw_websocket import request

pytestmark = pytest.mark.slow

TOOLS = [tool("first")]
SCRIPT = Script.of(call("first"), "word " * 150)
"""The second answer takes several batches, each of them one write."""
PATIENCE = 20.0

Run = Callable[[Client], Awaitable[str]]
"""One task of a client, to its answer. Raises ``ConnectionLost``."""


class Writing:
    """Stands for ``os`` in the outbox: the ``nth`` write, from 1, does what ``act`` says."""

    def __init__(self) -> None:
        self.calls = 0
        self.nth = 0
        self.act: Callable[[int, Any], int] = os.write

    def write(self, number: int, data: Any) -> int:
        self.calls += 1
        return self.act(number, data) if self.calls == self.nth else os.write(number, data)

    def arm(self, nth: int, act: Callable[[int, Any], int]) -> None:
        self.calls, self.nth, self.act = 0, nth, act


@pytest.fixture
def writing(monkeypatch: pytest.MonkeyPatch) -> Writing:
    made = Writing()
    monkeypatch.setattr(outbox, "os", SimpleNamespace(name=os.name, write=made.write))
    return made


def takes_nothing(number: int, data: Any) -> int:
    raise BlockingIOError(errno.EAGAIN, "try again")


def takes_a_byte(number: int, data: Any) -> int:
    return os.write(number, data[:1])


def is_gone(number: int, data: Any) -> int:
    raise BrokenPipeError(errno.EPIPE, "broken pipe")


async def over_a_socket(client: Client) -> str:
    async with client.connect() as ws:
        last = await last_of(ws.turn(model="sim", input="go", tools=TOOLS))
        answers = [output(made) for made in calls_of(last["response"])]
        if last["type"] == "response.done":
            return text_of((await last_of(ws.resume(answers)))["response"])
        again = {"previous_response_id": last["response"]["id"], "input": answers, "tools": TOOLS}
        return text_of((await last_of(ws.turn(model="sim", **again)))["response"])


async def over_http(client: Client, *, stream: bool) -> str:
    async def ask(**fields: Any) -> Frame:
        fields |= {"model": "sim", "tools": TOOLS, "store": True}
        if not stream:
            return shown(await client.create(**fields))
        async with client.stream(**fields) as events:
            terminal: Frame = (await last_of(events))["response"]
        return terminal

    first = await ask(input="go")
    answers = [output(made) for made in calls_of(first)]
    return text_of(await ask(input=answers, previous_response_id=first["id"]))


async def last_of(events: AsyncIterator[Any]) -> Frame:
    return [shown(event) async for event in events][-1]


def shown(message: Any) -> Frame:
    frame: Frame = json.loads(encode(message))
    return frame


WAYS: dict[str, tuple[Mode, Run]] = {
    "shipped": (Mode.SHIPPED, over_a_socket),
    "prototype": (Mode.PROTOTYPE, over_a_socket),
    "json": (Mode.SHIPPED, partial(over_http, stream=False)),
    "sse": (Mode.SHIPPED, partial(over_http, stream=True)),
}


@pytest.mark.parametrize("act", [takes_nothing, takes_a_byte, is_gone])
@pytest.mark.parametrize("way", WAYS)
async def test_any_write_to_a_client_may_go_wrong(serve: Any, writing: Writing, way: str, act: Any) -> None:
    mode, run = WAYS[way]
    engine = Sim(bundled_template(), script=SCRIPT)
    server = await serve(engine=engine, mode=mode, limits={"kept_contexts": 0})
    is_socket = run is over_a_socket
    async with Client(server.base_url) as client:
        undisturbed = await run(client)
        nth = 1 if is_socket and act is is_gone else 0  # the handshake has its own test
        broken = 0
        with trio.fail_after(PATIENCE):
            while nth <= writing.calls:
                nth += 1
                writing.arm(nth, act)
                try:
                    assert await run(client) == undisturbed, nth
                except ConnectionLost:
                    broken += 1
                    assert await run(client) == undisturbed
                while engine.sequences_open:
                    await trio.sleep(0.001)
    assert nth > 4
    assert (broken > 0) == (act is is_gone)


async def test_a_peer_that_goes_before_its_handshake_is_answered_is_no_fault(
    serve: Any, connect: Any, writing: Writing, caplog: pytest.LogCaptureFixture
) -> None:
    server = await serve()
    writing.arm(1, is_gone)
    async with await trio.open_tcp_stream("127.0.0.1", server.address.port) as stream:
        await stream.send_all(request())
        with trio.fail_after(PATIENCE), contextlib.suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""
    assert (await (await connect(server)).completed(input="hi"))["status"] == "completed"
    assert [entry for entry in caplog.records if entry.levelno >= logging.WARNING] == []
