"""The server that a bench asks, in a process of its own that tells its CPU time.

Both modes listen side by side on one store, with the same script: every model call is answered with a tool call. Beside
them a server without the cache of rendered tokens, and an echo on the same listener, outbox and WebSocket. Nothing is
logged. One JSON line tells the ports; then each line on standard input is answered with the CPU seconds that the
process has used, and how many of them its tokenizer and its model; the end of the input ends the process.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.resources
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import IO, NamedTuple

import msgspec
import trio

from bench.model import Model
from respserver.config import Config, Limits, Mode
from respserver.embed import open_server
from respserver.engines.sim import Script, call
from respserver.message_socket import Socket
from respserver.services import bundled_template
from respserver.store.memory import MemoryStore
from respserver.tokens.tokenizer import DATA_FILE, Tokenizer
from respserver.transport.listener import serve_connections
from respserver.transport.outbox import Outbox
from respserver.transport.websocket import serve_websocket

TOOL = "run_tests"
LIMITS = Limits(ping_seconds=0, grace_seconds=0)


class Spent(NamedTuple):
    """CPU seconds since the process began."""

    total: float
    tokenising: float
    model: float


class Served:
    """The running process: ``ports`` by name (``shipped``, ``prototype``, ``uncached``, ``echo``)."""

    def __init__(self, pid: int, requests: IO[bytes], answers: IO[bytes]) -> None:
        self.pid = pid
        self._requests = requests
        self._answers = answers
        self.ports: dict[str, int] = json.loads(answers.readline())

    def spent(self) -> Spent:
        """CPU time of the process up to now, all its threads together."""
        self._requests.write(b"\n")
        self._requests.flush()
        return Spent(*json.loads(self._answers.readline()))


@contextlib.contextmanager
def serving() -> Iterator[Served]:
    """Run the process for the length of a ``with`` block. Raises ``CalledProcessError`` if it ends with a fault."""
    command = [sys.executable, "-m", "bench.served"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: PT018 - both are pipes
        yield Served(process.pid, process.stdin, process.stdout)
        process.stdin.close()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


class TimedTokenizer(Tokenizer):
    """The bundled tokenizer, which counts its own time."""

    spent = 0.0

    def encode_short(self, texts: Sequence[str]) -> list[list[int]]:
        return self._timed(super().encode_short, texts)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return self._timed(super().encode_batch, texts)

    def _timed(self, encode: Callable[[Sequence[str]], list[list[int]]], texts: Sequence[str]) -> list[list[int]]:
        began, before = time.process_time(), self.spent
        try:
            return encode(texts)
        finally:
            self.spent = before + time.process_time() - began  # one may call the other: what that has noted is in it


async def main() -> None:
    tokenizer = TimedTokenizer(importlib.resources.files("respserver.tokens").joinpath(DATA_FILE).read_bytes())
    bundled_template().tokenizer = tokenizer  # made once a process: both servers have this one
    model = Model(Script.of(call(TOOL, command="pytest -q"), on_end="repeat"))
    store = MemoryStore(max_responses=1 << 20, max_bytes=1 << 30, max_idle_seconds=3600, now=time.monotonic)
    serve = partial(open_server, engine=model, store=store)
    uncached = msgspec.structs.replace(LIMITS, token_cache_bytes=0)
    async with (
        serve(Config(port=0, mode=Mode.SHIPPED, limits=LIMITS)) as shipped_server,
        serve(Config(port=0, mode=Mode.PROTOTYPE, limits=LIMITS)) as prototype_server,
        serve(Config(port=0, mode=Mode.SHIPPED, limits=uncached)) as uncached_server,
        trio.open_nursery() as nursery,
    ):
        servers = {"shipped": shipped_server, "prototype": prototype_server, "uncached": uncached_server}
        ports = {name: server.address.port for name, server in servers.items()}
        ports["echo"] = await nursery.start(serve_echo)
        print(json.dumps(ports), flush=True)
        gc.freeze()  # as the command does
        async for _ in trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())):
            print(json.dumps(Spent(time.process_time(), tokenizer.spent, model.spent)), flush=True)
        nursery.cancel_scope.cancel()


async def serve_echo(task_status: trio.TaskStatus[int]) -> None:
    """Every message comes back as it is."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with trio.open_nursery() as nursery:
        task_status.started(listeners[0].socket.getsockname()[1])
        await serve_connections(
            listeners,
            http=no_http,
            websocket=partial(serve_websocket, limits=LIMITS, admit=lambda *_: None, run=echo),
            limits=LIMITS,
            connections=nursery,
        )


async def echo(socket: Socket, _: None) -> None:
    while True:
        text = await socket.receive()
        socket.send_many([text.encode()])
        await socket.drain()


async def no_http(outbox: Outbox) -> None:
    await outbox.aclose()


if __name__ == "__main__":
    trio.run(main)
