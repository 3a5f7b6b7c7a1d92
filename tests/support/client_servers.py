"""Servers for the client's tests: each plays what it is given, and keeps what it was asked."""

from __future__ import annotations

from contextlib import asynccontextmanager

import msgspec
import trio
import trio.testing
import trio_websocket

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
        while request := await _read_request(stream):
            self.requests.append(request)
            await stream.send_all(self.head)
            for piece in self.pieces:
                await stream.send_all(b"%x\r\n%s\r\n" % (len(piece), piece))
                await trio.testing.wait_all_tasks_blocked()
            await stream.send_all(self.ending)
            if not self.keeps:
                break
        self.left.set()
        await stream.aclose()


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
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, page.serve, 0)
        port = listeners[0].socket.getsockname()[1]
        async with Client(f"http://127.0.0.1:{port}/v1", **options) as client:
            yield client
        nursery.cancel_scope.cancel()


def sse(*events):
    lines = [f"event: {event_type(event)}\ndata: {msgspec.json.encode(event).decode()}\n\n" for event in events]
    return "".join([": hello\n\n", *lines]).encode()
