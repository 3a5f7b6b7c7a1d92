"""What does one token cost from its id to its frame in the socket?

Stage by stage, as a WebSocket turn goes: parse the id, make the event of its delta, number and encode it, frame it,
write it; with one token due at a time, and with 16 that are due together and leave in one write. The last row is the
turn's own loop with all that stands between the stages: a turn of N tokens on a real connection, less a turn of none,
by an engine that gives ids without waiting, so that its own time is next to nothing. CPU time is the thread's own; the
far end reads in another process. Rounds are interleaved.

    python -m bench.tokens [--rounds N] [--tokens N] [--json]
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from collections.abc import Sequence as Ids
from typing import TypeVar

import trio

from bench.measure import Figures, arguments, report
from bench.sockets import read_stream
from bench.texts import tool_output
from respserver.config import Config, Limits, Mode
from respserver.engines.base import Batch, SamplingParams
from respserver.message_socket import Socket
from respserver.protocol.commands import Create
from respserver.protocol.connection import Connection, Delivery
from respserver.protocol.emitter import Emitter
from respserver.protocol.lane import Lane
from respserver.schema.events import Event
from respserver.schema.response import Response
from respserver.services import build_services, bundled_template, new_id
from respserver.session.gate import Gate
from respserver.session.port import LanePort
from respserver.tokens.parse import Delta, OutputParser
from respserver.tokens.special import Special
from respserver.transport.head import HeadReader
from respserver.transport.outbox import Outbox
from respserver.transport.websocket import frame, serve_websocket
from respserver.turn.interrupt import Interrupt
from respserver.turn.run import run_turn
from respserver.turn.slots import TurnSlots
from respserver.turn.stopwatch import Stopwatch
from respserver.turn.toolboxes import Toolboxes

JOINED = 16
PAUSE_SECONDS = 0.02
LIMITS = Limits(ping_seconds=0)
UPGRADE = (
    b"GET /v1/responses HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CREATE = '{"type":"response.create","model":"tape","store":false,"input":"go"}'

STAGES = ("parser.feed", "emitter.feed", "lane.send_event", "frame", "outbox.write")

T = TypeVar("T")
R = TypeVar("R")
Chunks = list[list[int]]
"""The ids of one answer as they fall due: each list is one write."""


class Tape:
    """An engine that plays ``chunks`` without ever waiting."""

    name = "sim"
    gives_logprobs = False

    def __init__(self) -> None:
        self.chunks: Chunks = []

    async def open(self) -> TapeSequence:
        return TapeSequence(self)

    async def aclose(self) -> None:
        pass


class TapeSequence:
    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._at = 0

    async def extend(self, ids: Ids[int]) -> None:  # noqa: ARG002 - as ``Sequence`` has it
        self._at = 0

    async def next(self, params: SamplingParams) -> Batch:  # noqa: ARG002 - as above
        self._at += 1
        chunks = self._tape.chunks
        return Batch(ids=chunks[self._at - 1], finished=self._at == len(chunks))

    async def discard(self, count: int) -> None:
        raise NotImplementedError("no limit cuts these turns")

    async def fork(self) -> TapeSequence:
        raise NotImplementedError("nothing forks these turns")

    async def aclose(self) -> None:
        pass


class Bench:
    """One connection and what is measured on it; ``figures`` fill up round by round. More than some hundred tokens at
    once would meet a full socket."""

    def __init__(self, rounds: int, tokens: int) -> None:
        template = bundled_template()
        text = template.tokenise([tool_output(size=8 * tokens, seed=1)])[:tokens]
        assert len(text) == tokens, "the text is too short"
        begin = [Special.START, *template.tokenise(["assistant"]), Special.SEP]
        self.figures: Figures = {}
        self._is_done = False
        self._rounds = rounds
        self._text = text
        self._begin, self._end = [int(token) for token in begin], [int(Special.END)]
        self._tape = Tape()
        self._services = build_services(Config(limits=LIMITS), engine=self._tape)
        self._token_bytes = template.token_bytes

    async def run(self) -> Figures:
        """Open the connection and measure."""
        with read_stream(UPGRADE) as stream:
            outbox = Outbox(stream, limit_bytes=LIMITS.outbox_bytes, write_seconds=LIMITS.write_seconds)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(outbox.run)
                head = HeadReader(LIMITS.head_bytes).feed(await outbox.receive_some())
                assert head is not None

                async def measure(socket: Socket, _: None) -> None:
                    await self._measure(socket, outbox)
                    self._is_done = True

                await serve_websocket(outbox, head, limits=LIMITS, admit=lambda *_: None, run=measure)
                nursery.cancel_scope.cancel()
        if not self._is_done:
            raise SystemExit(1)  # a session's fault goes no further than its socket, and was logged
        return self.figures

    async def _measure(self, socket: Socket, outbox: Outbox) -> None:
        for _ in range(self._rounds):
            for column, size in (("alone: cpu us a token", 1), (f"{JOINED} joined: cpu us a token", JOINED)):
                chunks = [self._text[at : at + size] for at in range(0, len(self._text), size)]
                spent = self._stages(chunks, outbox)
                await self._rest(outbox)
                spent["the five together"] = sum(spent.values())
                spent["a turn's token"] = await self._turn(chunks, socket) - await self._turn([], socket)
                await self._rest(outbox)
                for row, seconds in spent.items():
                    microseconds = seconds / len(self._text) * 1e6
                    self.figures.setdefault(row, {}).setdefault(column, []).append(microseconds)

    async def _rest(self, outbox: Outbox) -> None:
        """Let the reader empty the socket, which must have taken all that was written."""
        assert not outbox.pending_bytes, "the reader fell behind"
        await trio.sleep(PAUSE_SECONDS)

    def _stages(self, chunks: Chunks, outbox: Outbox) -> dict[str, float]:
        """CPU seconds of each stage, for all chunks."""
        parser = OutputParser(self._token_bytes)
        emitter = Emitter(Response(id=new_id("resp"), created_at=0, model="tape"), new_id)
        lane = Lane(Mode.SHIPPED)
        for delta in parser.feed(self._begin):
            emitter.feed(delta)
        gc.disable()  # what a turn makes dies at once; here all of it lives until the next stage

        def emit(deltas: list[Delta]) -> list[Event]:
            return [event for delta in deltas for event in emitter.feed(delta)]

        deltas, parsing = timed(parser.feed, chunks)
        events, emitting = timed(emit, deltas)
        messages, encoding = timed(lambda events: [lane.send_event(event) for event in events], events)
        frames, framing = timed(lambda messages: b"".join(map(frame, messages)), messages)
        _, writing = timed(outbox.write, [data for data in frames if data])
        gc.enable()
        return dict(zip(STAGES, (parsing, emitting, encoding, framing, writing), strict=True))

    async def _turn(self, chunks: Chunks, socket: Socket) -> float:
        """CPU seconds of a whole turn that says these chunks."""
        self._tape.chunks = [self._begin, *chunks, self._end]
        connection = Connection(Mode.SHIPPED, "websocket")
        delivery = connection.receive_message(CREATE, now=0.0)
        assert isinstance(delivery, Delivery)
        assert isinstance(delivery.event, Create)
        services = self._services
        port = LanePort(
            socket,
            delivery.lane,
            services,
            tenant="",
            connection_id="bench",
            own_slots=TurnSlots(0, 0, services.metrics),
            suspensions=services.suspensions,
            toolboxes=Toolboxes(services.hosts, 1.0),
            gate=Gate(),
        )
        began = time.thread_time()
        await run_turn(delivery.event, port, self._services, Interrupt(), Stopwatch(self._services.clock))
        return time.thread_time() - began


def timed(stage: Callable[[T], R], chunks: list[T]) -> tuple[list[R], float]:
    """What a stage makes of each chunk, and the CPU seconds that it took for all."""
    began = time.thread_time()
    made = [stage(chunk) for chunk in chunks]
    return made, time.thread_time() - began


def main() -> None:
    options = arguments(__doc__, rounds=11, tokens=512)
    bench = Bench(options.rounds, options.tokens)
    report(trio.run(bench.run), options)


if __name__ == "__main__":
    main()
