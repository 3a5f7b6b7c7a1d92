"""Floods of frames: they are served or refused, they hold up nobody else, and they fill no memory."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from respserver.transport import outbox
from respserver.transport.frame_meter import FRAMES_AT_ONCE, MAX_FRAGMENTS
from respserver.transport.hosting import MESSAGE_SOCKET_BYTES
from respserver.transport.outbox import Outbox
from tests.support.live import PATIENCE, Wire, text_of
from tests.support.raw_websocket import CLOSE, CONTINUATION, PING, PONG, TEXT, client_frame, request
from tests.support.roads import LATE, ROADS, raw_connection, raw_wire
from tests.support.websocket_host import client_of

EMPTY = client_frame(CONTINUATION, b"", final=False)
CREATE = json.dumps({"type": "response.create", "model": "sim", "input": "flood", "unread": "é" * 1000}).encode()
FLOOD = 3000
"""Frames in one packet of ours; together less than the server reads at once."""


@pytest.mark.slow
@pytest.mark.parametrize("road", ROADS)
async def test_a_message_in_thousands_of_tiny_and_empty_fragments_is_served(serve: Any, road: str) -> None:
    ping = client_frame(PING)
    fragments = [client_frame(CONTINUATION, bytes([byte]), final=False) + EMPTY for byte in CREATE]
    whole = [client_frame(TEXT, b"", final=False), *fragments[:500], ping, *fragments[500:]]
    assert len(fragments) * 2 < MAX_FRAGMENTS
    async with raw_wire(await serve(), road) as client:
        await client.stream.send_all(b"".join(whole) + client_frame(CONTINUATION))
        last = (await client.until("response.completed", "error"))[-1]
        assert text_of(last["response"]) == "You said: flood"


@pytest.mark.slow
async def test_a_message_of_endless_fragments_closes_with_1009_and_others_are_served(serve: Any, connect: Any) -> None:
    server = await serve()
    other: Wire = await connect(server)
    async with raw_wire(server) as client:
        start = client_frame(TEXT, b"", final=False)
        await client.stream.send_all(start + EMPTY * (MAX_FRAGMENTS - 1) + client_frame(PING, b"not yet"))
        assert (await client.frame()).payload == b"not yet"
        await client.stream.send_all(EMPTY)
        assert await client.close_code() == 1009
    assert text_of(await other.completed(input="still here")) == "You said: still here"


@pytest.mark.parametrize(
    "flood",
    [client_frame(TEXT, final=False) + EMPTY * FLOOD, client_frame(PONG) * FLOOD],
    ids=["fragments", "pongs"],
)
async def test_others_have_their_turn_between_the_frames_of_a_flood(flood: bytes) -> None:
    """The library alone would be through all of them before anybody else may do anything."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with client_of() as client:
        await client.open()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await client.stream.send_all(flood + client_frame(PING, b"end"))
            before = turns
            assert (await client.frame()).payload == b"end"
            assert turns - before >= FLOOD // FRAMES_AT_ONCE
            nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_behind_a_late_upgrade_little_is_read_at_once(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    receive_some = Outbox.receive_some

    async def note(outbox: Outbox, max_bytes: int | None = None) -> bytes:
        asked.append(max_bytes)
        return bytes(await receive_some(outbox, max_bytes))

    server = await serve()
    async with raw_wire(server, LATE) as client:
        await client.stream.send_all(client_frame(PING))
        await client.frame()
        monkeypatch.setattr(Outbox, "receive_some", note)
        await client.create(input="x" * 3 * MESSAGE_SOCKET_BYTES)
        assert (await client.until("response.completed", "error"))[-1]["type"] == "response.completed"
    assert len(asked) >= 3
    assert all(size is not None and size <= MESSAGE_SOCKET_BYTES for size in asked)


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [1, 300])
@pytest.mark.parametrize("road", ROADS)
async def test_a_message_of_17_megabytes_closes_with_1009_and_others_are_served(
    serve: Any, connect: Any, road: str, pieces: int
) -> None:
    server = await serve()
    other: Wire = await connect(server)
    codes: list[int] = []
    async with raw_wire(server, road) as client, trio.open_nursery() as nursery:

        async def read() -> None:
            frame = await client.frame()
            assert frame.opcode == CLOSE
            codes.append(int.from_bytes(frame.payload[:2], "big"))
            nursery.cancel_scope.cancel()  # the rest of the upload interests nobody

        nursery.start_soon(read)
        await client.send(b"x" * 17_000_000, pieces)
        await trio.sleep(PATIENCE)
    assert codes == [1009]
    assert text_of(await other.completed(input="still here")) == "You said: still here"


# --------------------------------------------------------------------------------------------------------- memory

MIB = 1 << 20
SENT = 64 * MIB
SPACE = 4 * MIB
"""Several times the limit of a message, and far less than what is sent or would come out."""
BLOCK = bytes(256 << 10)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def pour(client: Any, first: bytes, block: bytes) -> None:
    """Send on and on, whatever the server answers, until it takes no more or has been sent a lot."""
    await client.stream.send_all(first)
    with contextlib.suppress(trio.BrokenResourceError):
        for _ in range(SENT // len(block)):
            await client.stream.send_all(block)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "block"),
    [
        (client_frame(TEXT, bytes(SENT))[:14], BLOCK),
        (client_frame(TEXT, b"x", final=False), client_frame(CONTINUATION, BLOCK, final=False)),
        (client_frame(TEXT, BLOCK * 8), client_frame(TEXT, BLOCK * 8)),
    ],
    ids=["one frame", "fragments", "messages"],
)
@pytest.mark.parametrize("road", ROADS)
@pytest.mark.usefixtures("traced")
async def test_a_client_that_sends_on_after_its_1009_is_cut_off_and_costs_little(
    serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, road: str, first: bytes, block: bytes
) -> None:
    monkeypatch.setattr(outbox, "LINGER_SECONDS", 0.2)
    caplog.set_level("INFO", "respserver.session")
    async with raw_wire(await serve(limits={"message_bytes": MIB}), road) as client, trio.open_nursery() as nursery:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        nursery.start_soon(pour, client, first, block)
        assert await client.closed() == 1009
        _, peak = tracemalloc.get_traced_memory()
    assert peak - before < SPACE
    assert [record.getMessage() for record in caplog.records] == ["connection_opened", "connection_closed"]


@pytest.mark.slow
@pytest.mark.parametrize("road", ROADS)
@pytest.mark.usefixtures("traced")
async def test_a_message_that_would_inflate_is_not_inflated(serve: Any, road: str) -> None:
    compressor = zlib.compressobj(9, wbits=-zlib.MAX_WBITS)
    pieces = [compressor.compress(BLOCK) for _ in range(SENT // len(BLOCK))]
    bomb = bytearray(client_frame(TEXT, b"".join(pieces) + compressor.flush(zlib.Z_SYNC_FLUSH)))
    bomb[0] |= 0x40  # RSV1: compressed
    async with raw_connection(await serve(limits={"message_bytes": MIB}), road) as client:
        await client.stream.send_all(request(Sec_WebSocket_Extensions="permessage-deflate"))
        assert b"extensions" not in (await client.head()).lower()
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        with contextlib.suppress(trio.BrokenResourceError):
            await client.stream.send_all(bomb)
        await client.closed()
        _, peak = tracemalloc.get_traced_memory()
    assert peak - before < SPACE
