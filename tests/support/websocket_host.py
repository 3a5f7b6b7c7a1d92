"""A WebSocket connection served as the listener would serve it, without a port: memory streams and any session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trio
import trio.testing

from respserver.config import Limits
from respserver.errors import ApiError
from respserver.message_socket import Socket, SocketClosed
from respserver.transport.head import HeadReader
from respserver.transport.outbox import Outbox
from respserver.transport.websocket import serve_websocket
from tests.support.raw_websocket import RawClient

LIMITS = Limits(message_bytes=1024, outbox_bytes=4096, ping_seconds=0)

Run = Callable[[Socket, str], Awaitable[None]]


def welcome(target: str, headers: list[tuple[str, str]]) -> ApiError | str:
    return "guest"


async def echo(socket: Socket, admitted: str) -> None:
    while True:
        text = await socket.receive()
        socket.send_many([text.encode()])
        await socket.drain()


async def serve(stream: trio.abc.Stream, limits: Limits, admit: Callable[..., ApiError | str], run: Run) -> None:
    """What the listener does for one connection."""
    outbox = Outbox(stream, limit_bytes=limits.outbox_bytes, write_seconds=limits.write_seconds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        reader = HeadReader(limits.head_bytes)
        head = None
        while head is None:
            head = reader.feed(await outbox.receive_some())
        outbox.prepend(head.rest)
        try:
            await serve_websocket(outbox, head, limits=limits, admit=admit, run=run)
        finally:
            await outbox.aclose()


@asynccontextmanager
async def client_of(
    run: Run = echo, *, limits: Limits = LIMITS, admit: Callable[..., ApiError | str] = welcome
) -> AsyncIterator[RawClient]:
    """A client of a served connection; leaving waits for the server to be done with it."""
    theirs, ours = trio.testing.memory_stream_pair()
    mocked = isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)
    with trio.fail_after(10_000 if mocked else 5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, ours, limits, admit, run)
            yield RawClient(theirs)
            await theirs.aclose()


def ends(seen: list[SocketClosed]) -> Run:
    """A session that receives until the socket is closed, and notes how."""

    async def run(socket: Socket, admitted: str) -> None:
        try:
            while True:
                await socket.receive()
        except SocketClosed as closed:
            seen.append(closed)
            raise

    return run
