"""WebSocket on our own connection: the heartbeat, and every way a connection ends."""

from __future__ import annotations

import contextlib
import struct

import pytest
import trio
import trio.testing
import trio_websocket

from respserver.config import Limits
from respserver.message_socket import Socket, SocketClosed
from respserver.transport.lifetime import CLOSE_SECONDS, ECHOES, OUTBOX_MULTIPLE
from tests.support.http_host import tls_contexts
from tests.support.raw_websocket import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    Frame,
    RawClient,
    client_frame,
    close_frame,
)
from tests.support.websocket_host import LIMITS, client_of, echo, ends, serve, welcome

# ------------------------------------------------------------------------------------------------------ heartbeat

BEATING = Limits(ping_seconds=20, pong_seconds=10)


async def test_a_peer_that_answers_pings_lives_on(autojump_clock: trio.testing.MockClock) -> None:
    async with client_of(limits=BEATING) as client:
        await client.open()
        for _ in range(5):
            ping = await client.frame()
            assert ping.opcode == PING
            await client.stream.send_all(client_frame(PONG, ping.payload))
        assert trio.current_time() >= 100 - 1e-6


async def test_a_peer_that_answers_no_ping_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    seen: list[SocketClosed] = []
    async with client_of(ends(seen), limits=BEATING) as client:
        await client.open()
        began = trio.current_time()
        assert await client.closed() is None
        assert trio.current_time() - began == pytest.approx(30)
    assert [closed.code for closed in seen] == [None]


async def test_a_peer_in_the_middle_of_a_long_upload_is_not_given_up(autojump_clock: trio.testing.MockClock) -> None:
    """It cannot answer a ping inside a frame."""
    message = client_frame(TEXT, b"x" * 1000)
    async with client_of(limits=BEATING) as client:
        await client.open()
        for start in range(0, len(message), 100):
            await client.stream.send_all(message[start : start + 100])
            await trio.sleep(5)
        opcodes = set()
        while TEXT not in opcodes:
            opcodes.add((await client.frame()).opcode)


async def test_a_peer_that_reads_late_is_not_given_up_for_a_ping_that_it_could_not_see(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The ping is behind what it has not read yet. How long it may take for that is the outbox's to judge."""
    opened = trio.Event()

    async def run(socket: Socket, admitted: str) -> None:
        await opened.wait()
        socket.send_many([b"x" * 5000])
        await echo(socket, admitted)

    limits = Limits(ping_seconds=5, pong_seconds=10, write_seconds=60)
    theirs, ours = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, ours, limits, welcome, run)
        client = RawClient(theirs)
        await client.open()
        opened.set()
        await trio.sleep(50)
        assert await client.frame() == Frame(TEXT, b"x" * 5000)
        assert (await client.frame()).opcode == PING
        nursery.cancel_scope.cancel()


async def test_without_an_interval_there_is_no_ping(autojump_clock: trio.testing.MockClock) -> None:
    async with client_of() as client:
        await client.open()
        with trio.move_on_after(1000) as scope:
            await client.frame()
        assert scope.cancelled_caught


# --------------------------------------------------------------------------------------------------------- ending


async def test_a_session_that_returns_closes_with_1000() -> None:
    async def run(socket: Socket, admitted: str) -> None:
        socket.send_many([b"bye"])

    async with client_of(run) as client:
        await client.open(behind=close_frame(1000))
        assert (await client.frame()).payload == b"bye"
        assert await client.closed() == 1000


async def test_a_session_that_raises_closes_with_1011_and_hurts_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def run(socket: Socket, admitted: str) -> None:
        raise ValueError("a bug")

    async with client_of(run) as client:
        await client.open(behind=close_frame(1011))
        assert await client.closed() == 1011


async def test_the_sessions_own_code_and_reason_reach_the_peer() -> None:
    async def run(socket: Socket, admitted: str) -> None:
        await socket.close(1001, "going away")
        await socket.close(1000)
        with pytest.raises(SocketClosed) as caught:
            socket.send_many([b"late"])
        assert (caught.value.code, caught.value.reason) == (1001, "going away")
        with pytest.raises(SocketClosed):
            await socket.receive()

    async with client_of(run) as client:
        await client.open()
        assert await client.frame() == Frame(CLOSE, struct.pack("!H", 1001) + b"going away")
        await client.stream.send_all(close_frame(1001))
        assert await client.rest() == b""


async def test_nothing_follows_a_close_frame_while_it_is_unanswered(autojump_clock: trio.testing.MockClock) -> None:
    async def run(socket: Socket, admitted: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(socket.close, 1001)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(SocketClosed):
                socket.send_many([b"late"])

    async with client_of(run) as client:
        await client.open()
        assert await client.closed() == 1001


async def test_a_peer_that_never_answers_the_close_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    async with client_of(ends_at_once) as client:
        await client.open()
        began = trio.current_time()
        assert await client.closed() == 1000
        assert trio.current_time() - began == pytest.approx(CLOSE_SECONDS)


async def ends_at_once(socket: Socket, admitted: str) -> None:
    return


async def test_a_ping_after_our_close_frame_does_no_harm(autojump_clock: trio.testing.MockClock) -> None:
    async with client_of(ends_at_once) as client:
        await client.open()
        assert (await client.frame()).opcode == CLOSE
        await client.stream.send_all(client_frame(PING) + close_frame(1000))
        await client.rest()


async def test_a_ping_behind_the_peers_close_ends_the_session_like_any_close() -> None:
    seen: list[SocketClosed] = []
    async with client_of(ends(seen)) as client:
        await client.open()
        await client.stream.send_all(close_frame(1000) + client_frame(PING))
        assert await client.closed() == 1000
    assert [closed.code for closed in seen] == [1000]


async def test_a_fault_of_the_library_closes_with_1011_and_is_told_to_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[SocketClosed] = []

    async def run(socket: Socket, admitted: str) -> None:
        await ends(seen)(socket, admitted)

    async def fault(self: object, event: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(trio_websocket.WebSocketConnection, "_handle_ping_event", fault)
    async with client_of(run) as client:
        await client.open()
        await client.stream.send_all(client_frame(PING))
        assert await client.closed() == 1011
    assert len(seen) == 1


async def test_the_peers_close_is_answered_and_told_to_the_session() -> None:
    seen: list[SocketClosed] = []
    async with client_of(ends(seen)) as client:
        await client.open()
        await client.stream.send_all(close_frame(1000, "done"))
        assert await client.closed() == 1000
    assert [(closed.code, closed.reason) for closed in seen] == [(1000, "done")]


@pytest.mark.parametrize("pending", [0, 1 << 20])
async def test_a_client_that_vanishes_ends_the_session_at_once(
    pending: int, autojump_clock: trio.testing.MockClock
) -> None:
    seen: list[SocketClosed] = []
    ended_at: list[float] = []
    opened = trio.Event()

    async def run(socket: Socket, admitted: str) -> None:
        await opened.wait()
        socket.send_many([b"x" * pending])
        try:
            await ends(seen)(socket, admitted)
        finally:
            ended_at.append(trio.current_time())

    theirs, ours = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, ours, LIMITS, welcome, run)
        client = RawClient(theirs)
        await client.open()
        opened.set()
        await trio.testing.wait_all_tasks_blocked()
        vanished_at = trio.current_time()
        await theirs.send_stream.aclose()
    assert [closed.code for closed in seen] == [None]
    assert ended_at[0] - vanished_at < 1


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
async def test_a_stalled_client_is_given_up_and_its_session_told(
    is_tls: bool, autojump_clock: trio.testing.MockClock
) -> None:
    told: list[SocketClosed] = []
    opened = trio.Event()

    async def run(socket: Socket, admitted: str) -> None:
        await opened.wait()
        socket.send_many([b"x" * 5000])
        with pytest.raises(SocketClosed) as caught:
            await socket.drain()
        told.append(caught.value)
        with pytest.raises(SocketClosed):
            socket.send_many([b"more"])

    theirs, ours = stream_pair(is_tls=is_tls)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, ours, LIMITS, welcome, run)
        await RawClient(theirs).open()
        opened.set()
    assert [closed.code for closed in told] == [None]
    assert trio.current_time() == pytest.approx(LIMITS.write_seconds, abs=1)


def stream_pair(*, is_tls: bool) -> tuple[trio.abc.Stream, trio.abc.Stream]:
    """A client's and a server's end of streams that hold nothing back for a reader that takes nothing."""
    theirs, ours = trio.testing.lockstep_stream_pair()
    if not is_tls:
        return theirs, ours
    server, trusting = tls_contexts()
    return (
        trio.SSLStream(theirs, trusting, server_hostname="server.test"),
        trio.SSLStream(ours, server, server_side=True),
    )


async def test_a_client_that_is_far_behind_is_given_up_at_once(autojump_clock: trio.testing.MockClock) -> None:
    bound = OUTBOX_MULTIPLE * LIMITS.outbox_bytes + ECHOES * LIMITS.message_bytes
    seen: list[SocketClosed] = []
    opened = trio.Event()

    async def send_on(socket: Socket) -> None:
        await opened.wait()
        sent = 0
        with contextlib.suppress(SocketClosed):
            for sent in range(1000):  # noqa: B007 - what was sent before the one that is refused
                socket.send_many([b"x" * 1020])
        assert sent * 1024 == pytest.approx(bound, abs=1024)

    async def run(socket: Socket, admitted: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send_on, socket)
            await ends(seen)(socket, admitted)

    theirs, ours = trio.testing.lockstep_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, ours, LIMITS, welcome, run)
        await RawClient(theirs).open()
        opened.set()
    assert [closed.code for closed in seen] == [None]
    assert trio.current_time() < 1


async def test_a_cancelled_connection_ends_without_waiting(autojump_clock: trio.testing.MockClock) -> None:
    theirs, ours = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(serve, ours, LIMITS, welcome, echo)
        client = RawClient(theirs)
        await client.open()
        began = trio.current_time()
        nursery.cancel_scope.cancel()
    assert trio.current_time() - began < 0.1
