"""F26: the greatest age of a connection. F27: the greatest size of a message, over WebSocket by both roads and HTTP."""

from __future__ import annotations

import contextlib
import gzip
import json
from typing import Any

import pytest
import trio
from trio_websocket import ConnectionClosed

from respserver.config import Limits, Mode
from respserver.engines.sim import Script
from tests.field_cases.conftest import DEFAULT_LANE
from tests.support.live import PATIENCE, Wire, addressed, text_of, user
from tests.support.roads import FIRST, ROADS, raw_connection, raw_wire
from tests.support.spy import Spy

# ------------------------------------------------------------------------------------------------------------ age

AGE = 0.5
"""Seconds. A turn takes some ten milliseconds."""


def test_f26_the_age_limit_is_60_minutes() -> None:
    assert Limits().connection_seconds == 60 * 60


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(Mode))
async def test_f26_at_its_greatest_age_an_idle_socket_is_told_and_closed_and_both_chains_go_on_elsewhere(
    serve: Any, connect: Any, mode: Mode
) -> None:
    spy = Spy(Script.of("Noted.", "Again.", on_end="repeat"))
    server = await serve(engine=spy, mode=mode, limits={"connection_seconds": AGE})
    opened = trio.current_time()
    wire: Wire = await connect(server)
    stored = await wire.completed(store=True, input="keep this")
    unstored = await wire.completed(store=False, input="forget this")
    error = await wire.frame()
    assert trio.current_time() - opened == pytest.approx(AGE, abs=AGE)
    assert (error["type"], error["status"]) == ("error", 400)
    assert error["error"]["code"] == "websocket_connection_limit_reached"
    with trio.fail_after(PATIENCE), pytest.raises(ConnectionClosed) as caught:
        await wire.socket.get_message()
    assert caught.value.reason.code == 1001

    again: Wire = await connect(server)
    assert text_of(await again.completed(previous_response_id=stored["id"], input="go on")) == "Again."
    assert spy.contexts[-1] == "user: keep this\nassistant: Noted.\nuser: go on"
    gone = await again.refused(previous_response_id=unstored["id"], input="go on")
    assert gone["error"]["code"] == "previous_response_not_found"
    history = [user("forget this"), *unstored["output"], user("go on")]
    assert text_of(await again.completed(store=False, input=history)) == "Again."
    assert spy.contexts[-1] == "user: forget this\nassistant: Noted.\nuser: go on"


@pytest.mark.slow
@pytest.mark.parametrize("grace", [5.0, 0.0], ids=["in time", "too late"])
async def test_f26_at_the_age_limit_a_running_turn_has_its_grace_and_no_other_begins(
    serve: Any, connect: Any, grace: float
) -> None:
    spy = Spy(Script.of("Noted."))
    spy.gate = trio.Event()
    server = await serve(engine=spy, limits={"connection_seconds": AGE, "grace_seconds": grace})
    wire: Wire = await connect(server)
    await wire.create(input="go")
    await wire.create(input="waits")
    begun = [await wire.frame(), await wire.frame()]
    assert (await wire.frame())["error"]["code"] == "websocket_connection_limit_reached"
    if grace:
        spy.gate.set()
    frames = begun + await wire.frames()
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    if grace:
        assert text_of(frames[-1]["response"]) == "Noted."
    else:
        assert frames[-1]["type"] == "response.failed"
        assert frames[-1]["response"]["error"]["code"] == "websocket_connection_limit_reached"
    assert (await wire.frame())["error"]["code"] == "websocket_connection_limit_reached"  # the one that waited
    with trio.fail_after(PATIENCE), pytest.raises(ConnectionClosed) as caught:
        await wire.socket.get_message()
    assert caught.value.reason.code == 1001
    assert spy.contexts == (["user: go"] if grace else [])


# ----------------------------------------------------------------------------------------------------------- size

LIMIT = 4096
LETTERS = {"ascii": "x", "two bytes": "é", "four bytes": "\U0001f30a"}


def padded(size: int, letter: str, **fields: Any) -> bytes:
    """A create of exactly so many bytes, most of them in a field that nobody reads."""
    frame = {"type": "response.create", "model": "sim", "input": "hi", "unread": "", **fields}
    empty = json.dumps(frame, ensure_ascii=False).encode()
    count, rest = divmod(size - len(empty), len(letter.encode()))
    return json.dumps({**frame, "unread": letter * count + "x" * rest}, ensure_ascii=False).encode()


def test_f27_the_limit_is_16_mib() -> None:
    assert Limits().message_bytes == 16 << 20


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("letter", list(LETTERS))
@pytest.mark.parametrize("road", ROADS)
async def test_f27_a_message_of_the_limit_in_bytes_is_served_and_one_more_closes_with_1009(
    serve: Any, connect: Any, road: str, letter: str, pieces: int
) -> None:
    spy = Spy(Script.of("Hello.", on_end="repeat"))
    server = await serve(engine=spy, limits={"message_bytes": LIMIT})
    other: Wire = await connect(server)
    async with raw_wire(server, road, other.lane) as client:
        for size in (LIMIT - 1, LIMIT):
            message = padded(size, LETTERS[letter], **addressed({"type": "response.create"}, other.lane))
            assert len(message) == size
            await client.send(message, pieces)
            last = (await client.until("response.completed", "error"))[-1]
            assert last["type"] == "response.completed", last
        spy.gate = trio.Event()
        await other.create(input="a turn that runs meanwhile")
        assert (await other.frame())["type"] == "response.created"
        await client.send(padded(LIMIT + 1, LETTERS[letter]), pieces)
        assert await client.close_code() == 1009
    spy.gate.set()
    assert text_of((await other.frames())[-1]["response"]) == "Hello."
    assert text_of(await other.completed(input="still here")) == "Hello."


@DEFAULT_LANE
@pytest.mark.parametrize("stream", [False, True], ids=["json", "sse"])
@pytest.mark.parametrize("coding", ["identity", "gzip", "chunked"])
@pytest.mark.parametrize("letter", list(LETTERS))
async def test_f27_a_body_of_the_limit_in_bytes_is_served_and_one_more_is_a_413(
    serve: Any, connect: Any, letter: str, coding: str, stream: bool
) -> None:
    server = await serve(Script.of("Hello.", on_end="repeat"), limits={"message_bytes": LIMIT})
    other: Wire = await connect(server)
    for size in (LIMIT - 1, LIMIT):
        head, body = await post_raw(server, padded(size, LETTERS[letter], stream=stream), coding)
        assert head.startswith("HTTP/1.1 200 "), body
        assert "Hello." in body
    head, body = await post_raw(server, padded(LIMIT + 1, LETTERS[letter], stream=stream), coding)
    assert head.startswith("HTTP/1.1 413 ")
    assert "content-type: application/json" in head.lower()
    error = json.loads(body)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["code"]
    assert str(LIMIT) in error["message"]
    assert text_of(await other.completed(input="still here")) == "Hello."


async def post_raw(server: Any, body: bytes, coding: str) -> tuple[str, str]:
    """Head and body of the answer to a POST whose size is announced, or not (chunked), or not as it is (gzip)."""
    extra = f"Content-Length: {len(body)}"
    if coding == "gzip":
        body = gzip.compress(body)
        extra = f"Content-Encoding: gzip\r\nContent-Length: {len(body)}"
    elif coding == "chunked":
        pieces = [body[start : start + 1000] for start in range(0, len(body), 1000)]
        body = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in [*pieces, b""])
        extra = "Transfer-Encoding: chunked"
    request = f"POST /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{extra}\r\n\r\n"
    async with raw_connection(server) as client:
        with contextlib.suppress(trio.BrokenResourceError):  # of a body that is refused the rest is not taken
            await client.stream.send_all(request.encode() + body)
        return (await client.head()).decode("latin-1"), (await client.rest()).decode()


@pytest.mark.slow
async def test_f27_sixteen_mebibytes_are_served_over_both_transports(serve: Any) -> None:
    size = Limits().message_bytes
    server = await serve(Script.of("Hello.", on_end="repeat"))
    async with raw_wire(server, FIRST) as client:
        await client.send(padded(size, "x"))
        assert (await client.until("response.completed", "error"))[-1]["type"] == "response.completed"
        await client.send(padded(size + 1, "x"))
        assert await client.close_code() == 1009
    for length, status in ((size, 200), (size + 1, 413)):
        head, _ = await post_raw(server, padded(length, "x"), "identity")
        assert head.startswith(f"HTTP/1.1 {status} ")
