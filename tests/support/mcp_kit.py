"""MCP definitions as a host takes them, and a server whose answers a test chooses, for what a real one never does."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import h11
import msgspec
import trio
from msgspec import Raw

from respserver.tools.mcp import McpHost, McpToolbox

# Any in this file: JSON.

Json = dict[str, Any]
TOOL: Json = {"name": "tide", "description": "Tells the tide.", "inputSchema": {"type": "object"}}


def define(url: str, **fields: Any) -> Raw:
    """A definition that asks for no approval."""
    known = {"type": "mcp", "server_label": "harbour", "server_url": url, "require_approval": "never", **fields}
    return Raw(json.dumps(known).encode())


def host_for(*allow: str, list_seconds: float = 10.0) -> McpHost:
    return McpHost(allow, list_seconds=list_seconds)


@asynccontextmanager
async def open_box(url: str, *, list_seconds: float = 10.0, **fields: Any) -> AsyncIterator[McpToolbox]:
    """The toolbox of a server on this machine, which is allowed by its host and port."""
    host = host_for(url.split("/")[2], list_seconds=list_seconds)
    definition = define(url, **fields)
    host.check(definition, "tools[0]")
    box = await host.open(definition, "tools[0]")
    try:
        yield box
    finally:
        await box.aclose()


class Answer(msgspec.Struct):
    """One HTTP answer. ``hangs`` keeps it from being sent at all, ``slow`` for so many seconds."""

    body: bytes = b""
    status: int = 200
    type: str = "application/json"
    headers: dict[str, str | bytes] = {}
    hangs: bool = False
    slow: float = 0.0


def result(**fields: Any) -> Callable[[Json], Answer]:
    """A handler that answers with this JSON-RPC result."""
    return lambda asked: Answer(json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "result": fields}).encode())


def handshake(session: str | bytes | None = None) -> Callable[[Json], Answer]:
    def answer(asked: Json) -> Answer:
        given = result(
            protocolVersion="2025-06-18", capabilities={"tools": {}}, serverInfo={"name": "fake", "version": "1"}
        )(asked)
        given.headers = {} if session is None else {"mcp-session-id": session}
        return given

    return answer


class FakeServer:
    """Answers by JSON-RPC method (``DELETE`` by that name); of the older protocol, with one tool, unless told else."""

    def __init__(self, **handlers: Callable[[Json], Answer] | Answer) -> None:
        self.handlers: dict[str, Callable[[Json], Answer] | Answer] = {
            "server/discover": Answer(status=404),
            "initialize": handshake(),
            "notifications/initialized": Answer(status=202),
            "notifications/cancelled": Answer(status=202),
            "tools/list": result(tools=[TOOL]),
            "DELETE": Answer(),
        }
        for name, handler in handlers.items():
            self.handlers[name.replace("_", "/")] = handler
        self.seen: list[str] = []
        """Methods, as they came."""
        self.heads: list[dict[str, str]] = []
        self.open = 0
        """Connections that stand."""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        async with trio.open_nursery() as nursery:
            listener, *_ = await nursery.start(partial(trio.serve_tcp, self._serve, 0, host="127.0.0.1"))
            yield f"http://127.0.0.1:{listener.socket.getsockname()[1]}/mcp"
            nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.open += 1
        try:
            with suppress(trio.BrokenResourceError):
                await self._answer_all(stream)
        finally:
            self.open -= 1

    async def _answer_all(self, stream: trio.SocketStream) -> None:
        http = h11.Connection(h11.SERVER)
        body = b""
        name = ""
        while True:
            event = http.next_event()
            match event:
                case h11.NEED_DATA:
                    http.receive_data(await stream.receive_some())
                case h11.Request():
                    name = event.method.decode()
                    self.heads.append({key.decode(): value.decode() for key, value in event.headers})
                case h11.Data():
                    body += event.data
                case h11.EndOfMessage():
                    await self._answer(stream, http, name, json.loads(body or b"{}"))
                    http.start_next_cycle()
                    body = b""
                case _:
                    return

    async def _answer(self, stream: trio.SocketStream, http: h11.Connection, name: str, asked: Json) -> None:
        method = asked.get("method", name)
        self.seen.append(method)
        handler = self.handlers[method]
        answer = handler(asked) if callable(handler) else handler
        if answer.hangs:
            await stream.receive_some()  # until the client goes
            raise trio.BrokenResourceError
        await trio.sleep(answer.slow)
        headers = {"content-type": answer.type, "content-length": str(len(answer.body)), **answer.headers}
        events = (
            h11.Response(status_code=answer.status, headers=[*headers.items()]),
            h11.Data(data=answer.body),
            h11.EndOfMessage(),
        )
        await stream.send_all(b"".join(http.send(event) or b"" for event in events))
