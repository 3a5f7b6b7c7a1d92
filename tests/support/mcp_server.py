"""A small MCP server, made with the official package and run as a process of its own: the real other side.

``python -m tests.support.mcp_server [old] [stateless] [json]`` prints its port; ``old`` knows the handshake of 2025
only.
``GET /log`` tells what it was asked: a JSON list of ``[HTTP method, JSON-RPC method, authorization]``.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ImageContent, ToolAnnotations

# Any in this file: ASGI scopes and messages are open dictionaries.

ROOT = Path(__file__).parent.parent.parent
BIG = 20_000
TOO_BIG = 5 << 20
READ_ONLY = ("tide", "count")


def make_server() -> Any:
    server = MCPServer("harbour")
    look = ToolAnnotations(read_only_hint=True)
    counts: dict[str, int] = {}

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool(annotations=look, structured_output=False)
    def tide(place: str) -> str:
        """Tell the tide."""
        return f"High water at {place}: 06:12."

    @server.tool(structured_output=False)
    async def slow(seconds: float) -> str:
        """Take a while."""
        await anyio.sleep(seconds)
        return "done"

    @server.tool(structured_output=False)
    def failing() -> str:
        """Fail."""
        raise ValueError("the pump is broken")

    @server.tool(structured_output=False)
    def needs_args(text: str, times: int = 1) -> str:
        """Repeat a text."""
        return text * times

    @server.tool(structured_output=False)
    def big(characters: int) -> str:
        """Say much."""
        return "x" * characters

    @server.tool(structured_output=False)
    def picture() -> list[Any]:
        """Show something, with a word about it."""
        return ["a boat", ImageContent(type="image", data="AAAA", mime_type="image/png")]

    @server.tool(annotations=look, structured_output=False)
    def count(ctx: Context) -> str:
        """Count the calls of this session."""
        headers = ctx.headers or {}
        session = headers.get("mcp-session-id", "none")
        counts[session] = counts.get(session, 0) + 1
        return str(counts[session])

    return server


class Logged:
    """An ASGI app that remembers what the one inside was asked."""

    def __init__(self, app: Any, *, is_old: bool) -> None:
        self._app = app
        self._is_old = is_old
        self._seen: list[list[str]] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] == "/log":
            body = json.dumps(self._seen).encode()
            self._seen.clear()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        first, first_method = await receive(), ""
        with contextlib.suppress(ValueError):
            first_method = json.loads(first.get("body") or b"{}").get("method", "")
        self._seen.append([scope["method"], first_method, headers.get("authorization", "")])
        if self._is_old and first_method == "server/discover":
            await send({"type": "http.response.start", "status": 400, "headers": []})
            await send({"type": "http.response.body", "body": b"Bad Request: no session"})
            return
        waiting = [first]

        async def again() -> Any:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, again, send)


class McpProcess:
    """The server as a process, until ``stop``."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "tests.support.mcp_server", *options]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}/mcp"

    def log(self) -> list[list[str]]:
        """What it was asked since it last told."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as connection:
            connection.sendall(b"GET /log HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        body = answer.partition(b"\r\n\r\n")[2]
        seen: list[list[str]] = json.loads(body[body.index(b"[") : body.rindex(b"]") + 1])
        return seen

    def stop(self) -> None:
        self._process.kill()  # it would wait for calls that nobody waits for
        self._process.communicate()


@contextlib.contextmanager
def running(*options: str) -> Iterator[McpProcess]:
    process = McpProcess(*options)
    try:
        yield process
    finally:
        process.stop()


def end_with_parent() -> None:
    """Whatever becomes of whoever started this, its end of standard input is closed then."""
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    stateless, as_json = "stateless" in sys.argv, "json" in sys.argv
    inner = make_server().streamable_http_app(stateless_http=stateless, json_response=as_json)
    app = Logged(inner, is_old="old" in sys.argv)
    # By its name asyncio knows the protocol, and does not hold small writes back.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=end_with_parent, daemon=True).start()
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main()
