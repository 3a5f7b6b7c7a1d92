"""WebSocket on our own connection: admission, whole frames, limits."""

from __future__ import annotations

import json
import struct

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.errors import ApiError, InvalidApiKey, QueueFull, WebSocketDisabled
from respserver.message_socket import Socket, SocketClosed
from respserver.transport.websocket import CONTROL_BYTES, frame
from tests.support.raw_websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Frame,
    RawClient,
    client_frame,
    close_frame,
    request,
)
from tests.support.websocket_host import LIMITS, client_of, echo, ends, serve, welcome

# ------------------------------------------------------------------------------------------------------ handshake


async def test_messages_go_both_ways_as_single_text_frames() -> None:
    async with client_of() as client:
        await client.open()
        await client.stream.send_all(client_frame(TEXT, "grüß".encode()))
        assert await client.frame() == Frame(TEXT, "grüß".encode())


async def test_the_session_gets_what_admission_made_of_target_and_headers() -> None:
    seen: list[object] = []

    def admit(target: str, headers: list[tuple[str, str]]) -> str:
        seen.extend([target, dict(headers)["host"]])
        return "tenant"

    async def run(socket: Socket, admitted: str) -> None:
        seen.append(admitted)

    async with client_of(run, admit=admit) as client:
        await client.stream.send_all(request(target="/v1/responses?model=m"))
        await client.head()
    assert seen == ["/v1/responses?model=m", "server.test", "tenant"]


async def test_no_extension_and_no_subprotocol_is_accepted() -> None:
    async with client_of() as client:
        offers = request(
            Sec_WebSocket_Extensions="permessage-deflate; client_max_window_bits", Sec_WebSocket_Protocol="realtime"
        )
        await client.stream.send_all(offers)
        head = (await client.head()).lower()
        assert b"101" in head
        assert b"sec-websocket-extensions" not in head
        assert b"sec-websocket-protocol" not in head


@pytest.mark.parametrize("error", [InvalidApiKey(given=False), WebSocketDisabled(), QueueFull(3)])
async def test_a_refusal_is_plain_http_before_any_101(error: ApiError) -> None:
    async def run(socket: Socket, admitted: str) -> None:
        raise AssertionError("a refused connection has no session")

    async with client_of(run, admit=lambda target, headers: error) as client:
        await client.stream.send_all(request())
        head = (await client.head()).decode()
        body = await client.rest()
    lines = head.split("\r\n")
    fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
    assert lines[0].startswith(f"HTTP/1.1 {error.status} ")
    assert fields["content-type"] == "application/json"
    assert fields["connection"] == "close"
    assert int(fields["content-length"]) == len(body)
    assert error.headers.items() <= fields.items()
    assert json.loads(body) == {
        "error": {"message": error.message, "type": error.type, "param": None, "code": error.code}
    }


@pytest.mark.parametrize(
    "changes",
    [
        {"Sec_WebSocket_Key": None},
        {"Sec_WebSocket_Version": None},
        {"Sec_WebSocket_Version": "8"},
        {"Host": "\xff"},
    ],
)
async def test_a_bad_handshake_is_answered_at_once(
    changes: dict[str, str | None], autojump_clock: trio.testing.MockClock
) -> None:
    async with client_of() as client:
        began = trio.current_time()
        await client.stream.send_all(request(**changes))
        status = (await client.head()).split()[1]
        await client.rest()
        assert status in (b"400", b"426")
        assert trio.current_time() - began < 1


async def test_frames_sent_before_the_101_are_not_lost() -> None:
    async with client_of() as client:
        await client.open(behind=client_frame(TEXT, b"early") + client_frame(TEXT, b"bird"))
        assert [(await client.frame()).payload, (await client.frame()).payload] == [b"early", b"bird"]


# --------------------------------------------------------------------------------------------------------- frames


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 70000])
async def test_a_frame_of_any_size_can_be_parsed(size: int) -> None:
    theirs, ours = trio.testing.memory_stream_pair()
    await ours.send_all(frame(b"x" * size))
    assert await RawClient(theirs).frame() == Frame(TEXT, b"x" * size)


@settings(max_examples=30)
@given(messages=st.lists(st.binary(max_size=300), max_size=20))
def test_messages_that_leave_together_are_frames_one_by_one(messages: list[bytes]) -> None:
    async def parse() -> list[bytes]:
        theirs, ours = trio.testing.memory_stream_pair()
        await ours.send_all(b"".join(map(frame, messages)))
        client = RawClient(theirs)
        return [(await client.frame()).payload for _ in messages]

    assert trio.run(parse) == messages


async def test_messages_that_are_due_together_leave_in_one_write() -> None:
    opened = trio.Event()

    async def run(socket: Socket, admitted: str) -> None:
        await opened.wait()
        socket.send_many([b"one", b"two"])
        await socket.receive()

    async with client_of(run) as client:
        await client.open()
        opened.set()
        assert await client.stream.receive_some(1 << 16) == frame(b"one") + frame(b"two")


async def test_a_fragmented_message_arrives_whole_and_a_ping_between_is_answered() -> None:
    async with client_of() as client:
        await client.open()
        await client.stream.send_all(client_frame(TEXT, b"one ", final=False) + client_frame(PING, b"?"))
        assert await client.frame() == Frame(PONG, b"?")
        await client.stream.send_all(client_frame(CONTINUATION, b"two"))
        assert (await client.frame()).payload == b"one two"


async def test_the_server_keeps_reading_while_a_client_does_not() -> None:
    """F36: with the outbox full, pings are read and a close is honoured."""
    seen: list[SocketClosed] = []

    async def run(socket: Socket, admitted: str) -> None:
        async def write() -> None:
            while True:
                socket.send_many([b"x" * 1000])
                await socket.drain()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            await ends(seen)(socket, admitted)

    theirs, ours = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, ours, LIMITS, welcome, run)
        client = RawClient(theirs)
        await client.open()
        await trio.testing.wait_all_tasks_blocked()
        await theirs.send_all(client_frame(PING) * 40 + close_frame(1000))
        await trio.testing.wait_all_tasks_blocked()
        assert [closed.code for closed in seen] == [1000]
        opcodes = []
        while CLOSE not in opcodes:
            opcodes.append((await client.frame()).opcode)
        assert await client.closed() is None
        assert opcodes.count(PONG) == 40


async def test_pings_of_a_client_that_reads_nothing_do_not_pile_up_for_ever(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its pings are read no more, so that it fills its own buffers and not ours."""

    opened = trio.Event()

    async def run(socket: Socket, admitted: str) -> None:
        await opened.wait()
        socket.send_many([b"x" * 5000])
        await socket.receive()

    theirs, ours = trio.testing.lockstep_stream_pair()
    taken = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, ours, LIMITS, welcome, run)
        await RawClient(theirs).open()
        opened.set()
        with trio.move_on_after(1):
            while True:
                await theirs.send_all(client_frame(PING, b"p" * 125) * 100)
                taken += 100
        nursery.cancel_scope.cancel()
    assert taken * 127 <= 2 * CONTROL_BYTES


# --------------------------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize("text", ["x" * 1024, "é" * 512, "\U0001f600" * 256], ids=["ascii", "two", "four"])
@pytest.mark.parametrize("fragmented", [False, True])
async def test_a_message_of_exactly_the_limit_in_bytes_is_taken(text: str, fragmented: bool) -> None:
    async with client_of() as client:
        await client.open()
        await client.stream.send_all(in_frames(text.encode(), fragmented))
        assert (await client.frame()).payload == text.encode()


@pytest.mark.parametrize("text", ["x" * 1025, "é" * 512 + "x", "\U0001f600" * 256 + "x"], ids=["ascii", "two", "four"])
@pytest.mark.parametrize("fragmented", [False, True])
async def test_a_message_over_the_limit_in_bytes_closes_with_1009(text: str, fragmented: bool) -> None:
    seen: list[SocketClosed] = []
    async with client_of(ends(seen)) as client:
        await client.open()
        await client.stream.send_all(in_frames(text.encode(), fragmented))
        frame = await client.frame()
        assert (frame.opcode, struct.unpack("!H", frame.payload[:2])) == (CLOSE, (1009,))
        await client.stream.send_all(close_frame(1009))
        assert await client.rest() == b""
    assert [closed.code for closed in seen] == [1009]


def in_frames(payload: bytes, fragmented: bool) -> bytes:
    if not fragmented:
        return client_frame(TEXT, payload)
    cut = len(payload) // 2 + 1  # also inside a character
    return client_frame(TEXT, payload[:cut], final=False) + client_frame(CONTINUATION, payload[cut:])


async def test_a_close_1009_survives_the_rest_of_a_large_upload() -> None:
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener, trio.open_nursery() as nursery:
        stream = await trio.testing.open_stream_to_socket_listener(listener)
        nursery.start_soon(serve, await listener.accept(), LIMITS, welcome, echo)
        client = RawClient(stream)
        await client.open()
        await stream.send_all(client_frame(TEXT, b"x" * (1 << 20)))
        assert await client.closed() == 1009
        await stream.aclose()


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (client_frame(BINARY, b"{}"), 1003),
        (client_frame(TEXT, b"\xff\xfe"), 1007),
        (client_frame(TEXT, b"{}", masked=False), 1002),
        (client_frame(3), 1002),
        (client_frame(CONTINUATION, b"x"), 1002),
    ],
    ids=["binary", "not UTF-8", "unmasked", "reserved opcode", "nothing to continue"],
)
async def test_a_frame_that_breaks_the_rules_closes_with_its_code(sent: bytes, code: int) -> None:
    seen: list[SocketClosed] = []
    async with client_of(ends(seen)) as client:
        await client.open()
        await client.stream.send_all(sent + close_frame(code))
        assert await client.closed() == code
    assert len(seen) == 1
