"""What does one event cost on its way into the socket: through the outbox, and through Trio's ``send_all``?

Each way writes the same 184-byte events over loopback TCP to a process that only reads: one event a write, 16 joined.
Between batches is a short pause for the reader, so that what is measured is the write and not a full socket. CPU time
is the writing thread's own. Rounds are interleaved.

    python -m bench.outbox [--rounds N] [--events N] [--json]
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import trio

from bench.measure import Figures, arguments, report
from bench.sockets import read_stream
from respserver.transport.outbox import Outbox

EVENT = b"x" * 184
JOINED = 16
LIMIT_BYTES = 1 << 20
WRITE_SECONDS = 30.0
PAUSE_SECONDS = 0.0005

BATCH = 64
"""Events between two pauses for the reader: 12 KB."""


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
    batches = max(1, events // BATCH)
    spent = 0.0
    with read_stream() as stream:
        ends = Ends(stream, Outbox(stream, limit_bytes=LIMIT_BYTES, write_seconds=WRITE_SECONDS))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ends.outbox.run)
            for _ in range(batches):
                began = time.thread_time()
                await way(ends)
                spent += time.thread_time() - began
                assert not ends.outbox.pending_bytes, "the reader fell behind"
                await trio.sleep(PAUSE_SECONDS)
            ends.outbox.abort()
    return spent / (batches * BATCH) * 1e6


async def measure(rounds: int, events: int) -> Figures:
    figures: Figures = {name: {"cpu us an event": []} for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            figures[name]["cpu us an event"].append(await cpu_per_event(way, events))
    return figures


def main() -> None:
    options = arguments(__doc__, rounds=11, events=16_000)
    report(trio.run(measure, options.rounds, options.events), options)


if __name__ == "__main__":
    main()
