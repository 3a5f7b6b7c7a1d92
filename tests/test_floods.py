"""Floods of frames: they are served or refused, and they hold up nobody else."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio

from respserver.transport.frame_meter import FRAMES_AT_ONCE, MAX_FRAGMENTS
from respserver.transport.hosting import MESSAGE_SOCKET_BYTES
from respserver.transport.outbox import Outbox
from tests.support.live import PATIENCE, Wire, text_of
from tests.support.raw_websocket import CLOSE, CONTINUATION, PING, PONG, TEXT, client_frame
from tests.support.roads import LATE, ROADS, raw_wire
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
