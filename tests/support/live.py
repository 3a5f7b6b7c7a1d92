"""A raw client for tests: frames as dicts over a real socket, turns as lists of frames, HTTP as httpx."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import trio
import trio_websocket

TERMINALS = {"response.completed", "response.failed", "response.incomplete"}
ENDS = TERMINALS | {"error", "response.done"}
PATIENCE = 10.0
"""Seconds of real time after which a test that waits for a frame has failed."""
ADDRESSED = {"response.create", "response.append"}
"""What a client sends to a lane."""
OF_NO_LANE = {"invalid_json", "unknown_event_type", "invalid_stream_id"}
"""Errors of messages that reach no lane. That of the age limit is the connection's own too, unless it answers a
create."""

Frame = dict[str, Any]


def addressed(frame: Frame, lane: str | None) -> Frame:
    """A client's frame as it is sent to this lane; None is the default one."""
    return {"stream_id": lane, **frame} if lane is not None and frame.get("type") in ADDRESSED else frame


def off_lane(frame: Frame, lane: str | None) -> Frame:
    """A server's frame without the name of its lane, which it must bear, and the default lane's must not."""
    bare = {key: value for key, value in frame.items() if key != "stream_id"}
    code = frame["error"]["code"] if frame["type"] == "error" else ""
    bears_none = lane is None or code in OF_NO_LANE
    if not (code == "websocket_connection_limit_reached" and "stream_id" not in frame):
        assert frame == (bare if bears_none else {**bare, "stream_id": lane}), f"not a frame of lane {lane}: {frame}"
    return bare


class Wire:
    """One WebSocket, in the protocol's own words. All its turns are those of one lane, whose name each frame bears;
    ``frame`` leaves it out again, so that tests read the same on every lane."""

    def __init__(self, socket: trio_websocket.WebSocketConnection, lane: str | None = None) -> None:
        self.socket = socket
        self.lane = lane

    async def send(self, frame: Frame | str) -> None:
        text = frame if isinstance(frame, str) else json.dumps(addressed(frame, self.lane))
        await self.socket.send_message(text)

    async def create(self, **fields: Any) -> None:
        await self.send({"type": "response.create", "model": "sim", **fields})

    async def append(self, items: list[Frame], **fields: Any) -> None:
        await self.send({"type": "response.append", "input": items, **fields})

    async def receive(self) -> Frame:
        """The next frame as it is."""
        with trio.fail_after(PATIENCE):
            frame: Frame = json.loads(await self.socket.get_message())
        return frame

    async def frame(self) -> Frame:
        """The next frame, which must be one of the lane's."""
        return off_lane(await self.receive(), self.lane)

    async def frames(self) -> list[Frame]:
        """All frames up to and with the one that ends the step: a terminal, a pause or an error."""
        frames = [await self.frame()]
        while frames[-1]["type"] not in ENDS:
            frames.append(await self.frame())
        return frames

    async def turn(self, **fields: Any) -> list[Frame]:
        """A create and its frames."""
        await self.create(**fields)
        return await self.frames()

    async def completed(self, **fields: Any) -> Frame:
        """A create that must complete; its terminal Response."""
        last = (await self.turn(**fields))[-1]
        assert last["type"] == "response.completed", last
        response: Frame = last["response"]
        return response

    async def refused(self, **fields: Any) -> Frame:
        """A create that must be refused with a single error frame."""
        frames = await self.turn(**fields)
        assert [frame["type"] for frame in frames] == ["error"], frames
        return frames[0]


@contextlib.asynccontextmanager
async def open_wire(url: str, headers: dict[str, str] | None = None, lane: str | None = None) -> AsyncIterator[Wire]:
    pairs = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    async with trio.open_nursery() as nursery:
        socket = await trio_websocket.connect_websocket_url(
            nursery, url, extra_headers=pairs, max_message_size=1 << 30, receive_buffer_size=1 << 18
        )
        try:
            yield Wire(socket, lane)
        finally:
            with trio.CancelScope(shield=True):
                with trio.move_on_after(1):  # a peer that is gone answers no close frame
                    await socket.aclose()
                await socket._stream.aclose()  # the library leaves it open when the server has closed first
            nursery.cancel_scope.cancel()  # the library's reader would wait for ever for us to take a message


def http(server: Any, **options: Any) -> httpx.AsyncClient:
    """An HTTP client for the server's ``/v1``."""
    return httpx.AsyncClient(base_url=server.base_url, timeout=PATIENCE, **options)


async def post(server: Any, path: str = "/responses", **fields: Any) -> httpx.Response:
    """One POST of a create."""
    async with http(server) as client:
        return await client.post(path, json={"model": "sim", **fields})


def parse_sse(text: str) -> list[Frame]:
    """The events of a stream's text; ``[DONE]`` is left out, every block is checked for its two lines."""
    frames = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines or lines == ["data: [DONE]"]:
            continue
        assert len(lines) == 2, lines
        assert lines[0].startswith("event: ")
        assert lines[1].startswith("data: ")
        frame = json.loads(lines[1].removeprefix("data: "))
        assert frame["type"] == lines[0].removeprefix("event: ")
        frames.append(frame)
    return frames


async def stream(server: Any, **fields: Any) -> list[Frame]:
    """One POST with ``stream:true`` and its events."""
    answer = await post(server, stream=True, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n")
    return parse_sse(answer.text)


async def ask(server: Any, wire: Wire, transport: str, **fields: Any) -> Frame:
    """One create over a transport: its terminal event's ``response``, or its refusal's ``status`` and ``error``.

    ``transport`` is ``websocket``, ``sse``, or anything else for JSON.
    """
    if transport == "websocket":
        return (await wire.turn(**fields))[-1]
    answer = await post(server, stream=transport == "sse", **fields)
    if answer.status_code != 200:
        return {"status": answer.status_code, **answer.json()}
    return parse_sse(answer.text)[-1] if transport == "sse" else {"response": answer.json()}


def text_of(response: Frame) -> str:
    """All text of a Response's messages."""
    return "".join(
        part.get("text", "") for item in response["output"] if item["type"] == "message" for part in item["content"]
    )


def calls_of(response: Frame) -> list[Frame]:
    """The calls among a Response's items."""
    return [item for item in response["output"] if item["type"] in ("function_call", "custom_tool_call")]


def output(call: Frame, text: str = "ok") -> Frame:
    """The output of a call, as a client sends it."""
    kind = "custom_tool_call_output" if call["type"] == "custom_tool_call" else "function_call_output"
    return {"type": kind, "call_id": call["call_id"], "output": text}


def user(text: str) -> Frame:
    return {"role": "user", "content": text}


def tool(name: str = "lookup_tide", **properties: Any) -> Frame:
    """A function tool."""
    return {
        "type": "function",
        "name": name,
        "description": "A tool of the tests.",
        "parameters": {"type": "object", "properties": properties, "required": list(properties)},
    }
