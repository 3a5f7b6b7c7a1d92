"""What does one event cost on its way into the socket: through the outbox, and through Trio's ``send_all``?

Each way writes the same 184-byte events over loopback TCP to a thread that only reads: one event a write, 16 joined.
Batches are small enough for the socket to take at once, and the reader empties it before the next one, so that what is
measured is the write and not the buffer behind it. CPU time is the writing thread's own. Rounds are interleaved; the
table shows median and 95th percentile over rounds, in microseconds per event.

    python bench/outbox.py [--rounds N] [--events N] [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import socket
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio

from respserver.transport.outbox import Outbox

EVENT = b"x" * 184
JOINED = 16
LIMIT_BYTES = 1 << 20
WRITE_SECONDS = 30.0
PAUSE_SECONDS = 0.0002

BATCH = 64
"""Events between two pauses for the reader: 12 KB, below the 16 KiB that Trio lets wait unsent in a socket."""


class Ends(NamedTuple):
    """The writing side of one connection."""

    stream: trio.SocketStream
    outbox: Outbox


Way = Callable[[Ends], Awaitable[None]]


async def outbox_alone(ends: Ends) -> None:
    for _ in range(BATCH):
        ends.outbox.write(EVENT)
        await ends.outbox.drain()
    await trio.lowlevel.checkpoint()  # a turn gives way once a batch, not once an event


async def outbox_joined(ends: Ends) -> None:
    for _ in range(BATCH // JOINED):
        ends.outbox.write(b"".join([EVENT] * JOINED))
        await ends.outbox.drain()
    await trio.lowlevel.checkpoint()


async def stream_alone(ends: Ends) -> None:
    for _ in range(BATCH):
        await ends.stream.send_all(EVENT)


async def stream_joined(ends: Ends) -> None:
    for _ in range(BATCH // JOINED):
        await ends.stream.send_all(b"".join([EVENT] * JOINED))


WAYS: dict[str, Way] = {
    "outbox.write, one event": outbox_alone,
    f"outbox.write, {JOINED} joined": outbox_joined,
    "stream.send_all, one event": stream_alone,
    f"stream.send_all, {JOINED} joined": stream_joined,
}


async def cpu_per_event(way: Way, events: int) -> float:
    """Microseconds of this thread's CPU time for one event."""
    ours, theirs = tcp_pair()
    reader = Reader(theirs)
    stream = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
    ends = Ends(stream, Outbox(stream, limit_bytes=LIMIT_BYTES, write_seconds=WRITE_SECONDS))
    batches = events // BATCH
    spent = 0.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ends.outbox.run)
        for number in range(1, batches + 1):
            began = time.thread_time()
            await way(ends)
            spent += time.thread_time() - began
            while reader.taken < number * BATCH * len(EVENT):
                await trio.sleep(PAUSE_SECONDS)
        ends.outbox.abort()
    reader.thread.join()
    return spent / (batches * BATCH) * 1e6


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    return ours, theirs


class Reader:
    """A thread that reads and counts."""

    def __init__(self, theirs: socket.socket) -> None:
        self.taken = 0
        self.thread = threading.Thread(target=self._read, args=(theirs,), daemon=True)
        self.thread.start()

    def _read(self, theirs: socket.socket) -> None:
        with theirs, contextlib.suppress(ConnectionResetError):
            while data := theirs.recv(1 << 16):
                self.taken += len(data)


async def measure(rounds: int, events: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            figures[name].append(await cpu_per_event(way, events))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--events", type=int, default=16_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = trio.run(measure, options.rounds, options.events)
    result: dict[str, Any] = {  # Any: printed as it is
        "python": platform.python_version(),
        "trio": trio.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
        "event_bytes": len(EVENT),
        "rounds": options.rounds,
        "us_per_event": {
            name: {"median": statistics.median(values), "p95": statistics.quantiles(values, n=20)[-1]}
            for name, values in figures.items()
        },
    }
    print(json.dumps(result) if options.json else table(result))


def table(result: dict[str, Any]) -> str:
    lines = [f"{'CPU us per event':30} {'median':>8} {'p95':>8}"]
    lines += [f"{name:30} {row['median']:8.2f} {row['p95']:8.2f}" for name, row in result["us_per_event"].items()]
    lines.append("Python {python}, trio {trio}, {machine}, {rounds} rounds".format_map(result))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
