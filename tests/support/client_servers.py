"""Servers for the client's tests: each plays what it is given, and keeps what it was asked."""

from __future__ import annotations

from base64 import b64encode
from contextlib import asynccontextmanager, suppress
from functools import partial
from hashlib import sha1

import msgspec
import pytest
import trio
import trio.testing
import trio_websocket
import wsproto.connection
from wsproto.events import CloseConnection

from respserver.client import Client, event_type
from respserver.schema.events import (
    ErrorDetail,
    ErrorFrame,
    OutputTextDelta,
    RequiredInput,
    ResponseCompleted,
    ResponseCreated,
    ResponseDone,
)
from respserver.schema.items import FunctionCall, OutputMessage, OutputText
from respserver.schema.response import Response
from tests.support.raw_websocket import client_frame

PATIENCE = 60.0
"""Longer than any deadline of the client's, so that those are what is seen under ``autojump_clock``."""
ANSWER = OutputMessage(id="msg_1", status="completed", content=[OutputText(text="Sunny.")])
NOT_FOUND = ErrorFrame(
    status=400,
    error=ErrorDetail(
        type="invalid_request_error",
        code="previous_response_not_found",
        message="Previous response with id 'resp_0' not found.",
        param="previous_response_id",
        headers={"retry-after": "1"},
    ),
)


def response(id="resp_1", output=(), **fields):
    return Response(id=id, created_at=1, model="sim", output=list(output), **fields)


def call(call_id, name="weather", arguments='{"city":"Oslo"}', **fields):
    return FunctionCall(
        id=f"fc_{call_id}", status="completed", call_id=call_id, name=name, arguments=arguments, **fields
    )


def created(id="resp_1"):
    return ResponseCreated(response=response(id))


def completed(*output, id="resp_1"):
    return ResponseCompleted(response=response(id, output, status="completed"))


def done(*calls, id="resp_1"):
    required = [RequiredInput(type=f"{item_type(entry)}_output", call_id=entry.call_id) for entry in calls]
    return ResponseDone(response=response(id, calls), required_input=required)


def item_type(item):
    return item.__struct_config__.tag


def delta(text):
    return OutputTextDelta(item_id="msg_1", output_index=0, content_index=0, delta=text)


class Script:
    """A WebSocket server that answers the n-th message with the n-th list of events, then closes if told to."""

    def __init__(self, *answers, close=None):
        self.answers = list(answers)
        self.close = close
        self.received = []
        self.path = None
        self.headers = {}

    async def serve(self, request):
        self.path = request.path
        self.headers = dict(request.headers)
        ws = await request.accept()
        try:
            for events in self.answers:
                self.received.append(msgspec.json.decode(await ws.get_message()))
                for event in events:
                    await ws.send_message(event if isinstance(event, str) else msgspec.json.encode(event).decode())
            if self.close:
                await ws.aclose(*self.close)
            else:
                await ws.get_message()
        except trio_websocket.ConnectionClosed:
            pass


@asynccontextmanager
async def serving(handler):
    async with trio.open_nursery() as nursery:
        server = await nursery.start(trio_websocket.serve_websocket, handler, "127.0.0.1", 0, None)
        yield f"http://127.0.0.1:{server.port}/v1"
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(script, **options):
    async with serving(script.serve) as url, Client(url, **options).connect() as ws:
        yield ws


async def collect(events):
    """All that an iterator gives."""
    return [event async for event in events]


class Page:
    """An HTTP server that gives every request the same answer, in the pieces given, and keeps what it was asked."""

    def __init__(self, status, *pieces, headers="", ending=b"0\r\n\r\n", keeps=True, interim=b""):
        self.head = interim + f"HTTP/1.1 {status} X\r\ntransfer-encoding: chunked\r\n{headers}\r\n".encode()
        self.pieces = pieces
        self.ending = ending
        """What follows the last chunk; without it the answer never ends."""
        self.keeps = keeps
        self.requests = []
        self.connections = 0
        self.left = trio.Event()

    async def serve(self, stream):
        self.connections += 1
        with suppress(trio.BrokenResourceError):
            await self._answer(stream)
        self.left.set()
        await stream.aclose()

    async def _answer(self, stream):
        while request := await _read_request(stream):
            self.requests.append(request)
            await stream.send_all(self.head)
            for piece in self.pieces:
                await stream.send_all(b"%x\r\n%s\r\n" % (len(piece), piece))
                await trio.testing.wait_all_tasks_blocked()
            await stream.send_all(self.ending)
            if not self.keeps:
                break


async def _read_request(stream):
    received = b""
    while (end := received.find(b"\r\n\r\n")) < 0 or len(received) - end - 4 < _body_length(received):
        more = await stream.receive_some()
        if not more:
            return None
        received += more
    return received[:end].decode().lower(), msgspec.json.decode(received[end + 4 :])


def _body_length(received):
    lines = received.lower().split(b"\r\n\r\n", 1)[0].split(b"\r\n")
    return int(next(line.split(b":")[1] for line in lines if line.startswith(b"content-length")))


@asynccontextmanager
async def paging(page, **options):
    async with listening(page.serve) as url, Client(url, **options) as client:
        yield client


class Peer:
    """A WebSocket server's end made of bytes, which does what no library would; its client's frames are read right."""

    def __init__(self, stream):
        self.stream = stream
        self._received = b""
        self._frames = wsproto.connection.Connection(wsproto.ConnectionType.SERVER)

    async def head(self):
        """The next request's head, as fields."""
        while b"\r\n\r\n" not in self._received:
            self._received += await self.stream.receive_some() or pytest.fail("the client has hung up")
        head, _, self._received = self._received.partition(b"\r\n\r\n")
        return dict(line.split(": ", 1) for line in head.decode().splitlines()[1:])

    async def accept(self, behind=b"", **changes):
        """Answer the upgrade; ``changes`` replace fields of the answer, None leaves one out."""
        key = {name.lower(): value for name, value in (await self.head()).items()}["sec-websocket-key"].encode()
        fields = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept_key(key), **changes}
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in fields.items() if value is not None]
        await self.stream.send_all("\r\n".join(["HTTP/1.1 101 X", *lines, "", ""]).encode() + behind)

    async def send(self, opcode, payload=b"", **options):
        await self.stream.send_all(client_frame(opcode, payload, masked=False, **options))

    async def events(self):
        """What wsproto makes of the client's next bytes; none if it has hung up."""
        data = self._received or await self.stream.receive_some()
        self._received = b""
        if data:
            self._frames.receive_data(data)
        return list(self._frames.events()) if data else []

    async def until_gone(self):
        """Read all the frames that still come, until the client has closed or hung up."""
        seen = []
        with suppress(trio.BrokenResourceError):
            while not (seen and isinstance(seen[-1], CloseConnection)) and (events := await self.events()):
                seen += events
        return seen

    async def reset(self):
        """Be gone with a reset instead of an end."""
        self.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await trio.aclose_forcefully(self.stream)


def accept_key(key):
    return b64encode(sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()).decode()


@asynccontextmanager
async def peering(play):
    """Each connection is for ``play(peer)`` and ends with it; nothing takes longer than the test's patience."""

    async def serve(stream):
        async with stream:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                await play(Peer(stream))

    with trio.fail_after(PATIENCE):
        async with listening(serve) as url:
            yield url


@asynccontextmanager
async def listening(serve):
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1"
        nursery.cancel_scope.cancel()


def sse(*events):
    lines = [f"event: {event_type(event)}\ndata: {msgspec.json.encode(event).decode()}\n\n" for event in events]
    return "".join([": hello\n\n", *lines]).encode()
