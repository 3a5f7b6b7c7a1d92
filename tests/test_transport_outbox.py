"""The outbox: whole and ordered bytes, bounded waiting, a stalled peer is given up, an orderly end."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest
import trio
import trio.testing
import trustme

from respserver.transport.outbox import QUIET_SECONDS, Outbox

LIMIT = 1000
WRITE_SECONDS = 30.0


@contextlib.asynccontextmanager
async def running(
    stream: trio.abc.Stream, *, limit: int = LIMIT, seconds: float = WRITE_SECONDS
) -> AsyncIterator[Outbox]:
    outbox = Outbox(stream, limit_bytes=limit, write_seconds=seconds)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        yield outbox
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def tcp_pair() -> AsyncIterator[tuple[trio.SocketStream, trio.SocketStream]]:
    """Two ends of a loopback connection with small kernel buffers."""
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with listener:
        client = await trio.testing.open_stream_to_socket_listener(listener)
        server = await listener.accept()
        server.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_SNDBUF, 8192)
        async with client, server:
            yield client, server


async def read_all(stream: trio.abc.ReceiveStream) -> bytes:
    return b"".join([part async for part in stream])


def numbered(count: int, size: int = 997) -> list[bytes]:
    return [f"{number:06d}".encode().ljust(size, b".") for number in range(count)]


async def test_a_write_reaches_the_peer_without_a_writer_task_or_a_wait() -> None:
    async with tcp_pair() as (client, server):
        outbox = Outbox(server, limit_bytes=LIMIT, write_seconds=1)
        outbox.write(b"at once")
        assert outbox.pending_bytes == 0
        assert await client.receive_some() == b"at once"


async def test_what_the_socket_does_not_take_follows_whole_and_in_order() -> None:
    pieces = numbered(300)
    async with tcp_pair() as (client, server), running(server) as outbox:
        for piece in pieces:
            outbox.write(piece)
        assert outbox.pending_bytes > 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.aclose)
            assert await read_all(client) == b"".join(pieces)


async def test_a_write_that_the_socket_takes_in_part_arrives_once_and_whole() -> None:
    data = b"".join(numbered(400))
    async with tcp_pair() as (client, server), running(server) as outbox:
        outbox.write(data)
        assert 0 < outbox.pending_bytes < len(data)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.aclose)
            assert await read_all(client) == data


async def test_a_write_while_the_writer_is_busy_does_not_overtake() -> None:
    pieces = numbered(1500)
    async with tcp_pair() as (client, server), running(server) as outbox:

        async def write() -> None:
            for piece in pieces:
                outbox.write(piece)
                await outbox.drain()
            await outbox.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            assert await read_all(client) == b"".join(pieces)


async def test_drain_passes_without_a_checkpoint_while_there_is_room() -> None:
    ours, _ = trio.testing.lockstep_stream_pair()
    outbox = Outbox(ours, limit_bytes=LIMIT, write_seconds=1)
    outbox.write(bytes(LIMIT))
    with trio.testing.assert_no_checkpoints():
        await outbox.drain()


async def test_drain_waits_until_no_more_than_the_limit_is_pending(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with running(ours) as outbox:
        outbox.write(bytes(LIMIT + 1))
        with trio.move_on_after(1) as scope:
            await outbox.drain()
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(theirs.receive_some, LIMIT + 1)
            await outbox.drain()
        assert outbox.pending_bytes <= LIMIT


async def test_send_all_waits_for_the_peer_and_is_always_a_checkpoint(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with running(ours) as outbox:
        with trio.move_on_after(1) as scope:
            await outbox.send_all(b"abc")
        assert scope.cancelled_caught
        assert await theirs.receive_some(10) == b"abc"  # queued before the cancel, so sent
        await outbox.wait_send_all_might_not_block()
    async with tcp_pair() as (_, server), running(server) as outbox:
        with trio.testing.assert_checkpoints():
            await outbox.send_all(b"abc")


async def test_cancelling_writers_that_wait_never_cuts_what_they_wrote() -> None:
    size = 997
    async with tcp_pair() as (client, server), running(server, limit=0) as outbox:
        written = []

        async def write_some(first: int) -> None:
            for piece in numbered(first + 200, size)[first:]:
                outbox.write(piece)
                written.append(piece)
                await outbox.send_all(b"")

        async with trio.open_nursery() as reading:
            received: list[bytes] = []

            async def read() -> None:
                received.append(await read_all(client))

            for first in range(0, 2000, 200):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(write_some, first)
                    await trio.testing.wait_all_tasks_blocked()
                    nursery.cancel_scope.cancel()
            assert outbox.pending_bytes > 0
            reading.start_soon(read)
            await outbox.aclose()
        assert received == [b"".join(written)]


async def test_a_peer_that_takes_nothing_is_given_up(autojump_clock: trio.testing.MockClock) -> None:
    ours, _theirs = trio.testing.lockstep_stream_pair()
    async with running(ours) as outbox:
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            await outbox.send_all(bytes(10))
        assert trio.current_time() - began == pytest.approx(WRITE_SECONDS)
        assert outbox.pending_bytes == 0
        for attempt in (outbox.drain, outbox.flush):
            with pytest.raises(trio.BrokenResourceError):
                await attempt()
        with pytest.raises(trio.BrokenResourceError):
            outbox.write(b"more")


async def test_a_slow_peer_is_not_given_up_while_it_takes_something(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with running(ours) as outbox:
        outbox.write(bytes(5 << 16))
        for _ in range(5):
            await trio.sleep(WRITE_SECONDS * 0.9)
            for _ in range(16):
                await theirs.receive_some(4096)
        await outbox.flush()


@pytest.mark.slow
async def test_a_stalled_tcp_peer_is_reset_and_a_shielded_sender_is_freed() -> None:
    async with tcp_pair() as (client, server), running(server, seconds=0.1) as outbox:
        with trio.fail_after(5), trio.CancelScope(shield=True), pytest.raises(trio.BrokenResourceError):
            await outbox.send_all(bytes(1 << 24))
        with pytest.raises(trio.BrokenResourceError):
            await read_all(client)


async def test_abort_frees_the_reader_too() -> None:
    async with tcp_pair() as (_, server), running(server) as outbox, trio.open_nursery() as nursery:

        async def read() -> None:
            with pytest.raises(trio.BrokenResourceError):
                await outbox.receive_some()

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        outbox.abort()
        outbox.abort()


async def test_abort_ends_a_writer_task_that_waits_for_the_peer(autojump_clock: trio.testing.MockClock) -> None:
    ours, _theirs = trio.testing.lockstep_stream_pair()
    outbox = Outbox(ours, limit_bytes=LIMIT, write_seconds=WRITE_SECONDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        outbox.write(bytes(10))
        await trio.testing.wait_all_tasks_blocked()
        outbox.abort()
    assert trio.current_time() < WRITE_SECONDS


async def test_a_write_to_a_peer_that_reset_fails_as_broken() -> None:
    async with tcp_pair() as (client, server), running(server) as outbox:
        client.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        await client.aclose()
        with contextlib.suppress(trio.BrokenResourceError):
            outbox.write(b"lost")
        with pytest.raises(trio.BrokenResourceError):
            outbox.write(b"refused")
        with pytest.raises(trio.BrokenResourceError):
            await outbox.drain()


async def test_prepended_bytes_are_read_first() -> None:
    async with tcp_pair() as (client, server):
        outbox = Outbox(server, limit_bytes=LIMIT, write_seconds=1)
        outbox.prepend(b"world ")
        outbox.prepend(b"hello ")
        await client.send_all(b"and more")
        assert [await outbox.receive_some(5), await outbox.receive_some(), await outbox.receive_some(3)] == [
            b"hello",
            b" world ",
            b"and",
        ]


async def test_a_cancelled_writer_task_leaves_a_broken_outbox(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with running(ours) as outbox:
        outbox.write(bytes(10))
    with pytest.raises(trio.BrokenResourceError):
        await outbox.flush()
    assert len(await read_all(theirs)) <= 10  # and then the end: the stream is closed


async def test_after_aclose_nothing_more_is_taken() -> None:
    async with tcp_pair() as (client, server), running(server) as outbox, trio.open_nursery() as nursery:
        nursery.start_soon(outbox.aclose)
        assert await read_all(client) == b""
        await client.aclose()
        await outbox.aclose()
        with pytest.raises(trio.ClosedResourceError):
            outbox.write(b"late")
        with pytest.raises(trio.ClosedResourceError):
            await outbox.drain()


async def test_a_stalled_peer_delays_aclose_only_for_the_write_deadline(autojump_clock: trio.testing.MockClock) -> None:
    ours, _theirs = trio.testing.lockstep_stream_pair()
    async with running(ours) as outbox:
        outbox.write(bytes(10))
        began = trio.current_time()
        await outbox.aclose()
        assert trio.current_time() - began == pytest.approx(WRITE_SECONDS)


async def test_a_cancelled_aclose_closes_at_once(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.lockstep_stream_pair()
    async with running(ours) as outbox:
        outbox.write(bytes(10))
        with trio.move_on_after(0):
            await outbox.aclose()
        with pytest.raises(trio.BrokenResourceError):
            outbox.write(b"late")
        assert len(await read_all(theirs)) <= 10


async def test_a_second_aclose_waits_for_the_first(autojump_clock: trio.testing.MockClock) -> None:
    ours, _theirs = trio.testing.memory_stream_pair()
    async with running(ours) as outbox, trio.open_nursery() as nursery:
        nursery.start_soon(outbox.aclose)
        await trio.testing.wait_all_tasks_blocked()
        began = trio.current_time()
        await outbox.aclose()
        assert trio.current_time() - began == pytest.approx(QUIET_SECONDS)


async def test_the_last_bytes_survive_input_that_nobody_read() -> None:
    """Closing a socket with unread input resets the peer, which would lose the answer."""
    async with tcp_pair() as (client, server), running(server) as outbox:
        await client.send_all(bytes(4000))
        await trio.testing.wait_all_tasks_blocked()
        outbox.write(b"413")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outbox.aclose)
            await trio.testing.wait_all_tasks_blocked()
            await client.send_all(bytes(1 << 20))
            assert await read_all(client) == b"413"
            await client.aclose()


async def test_a_task_that_reads_while_the_stream_is_closed_gets_nothing_more() -> None:
    async with tcp_pair() as (client, server), running(server) as outbox, trio.open_nursery() as nursery:

        async def read() -> None:
            assert await outbox.receive_some() == b""

        nursery.start_soon(read)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(outbox.aclose)
        await trio.testing.wait_all_tasks_blocked()
        await client.send_all(b"late")
        await client.send_eof()


async def test_an_idle_peer_delays_aclose_only_for_the_quiet_time(autojump_clock: trio.testing.MockClock) -> None:
    ours, _theirs = trio.testing.memory_stream_pair()
    async with running(ours) as outbox:
        began = trio.current_time()
        await outbox.aclose()
        assert trio.current_time() - began == pytest.approx(QUIET_SECONDS)
        with pytest.raises(trio.ClosedResourceError):
            await outbox.receive_some()


async def test_aclose_tells_the_peer_of_the_end_before_it_lingers(autojump_clock: trio.testing.MockClock) -> None:
    ours, theirs = trio.testing.memory_stream_pair()
    async with running(ours) as outbox, trio.open_nursery() as nursery:
        nursery.start_soon(outbox.aclose)
        assert await read_all(theirs) == b""
        assert trio.current_time() == 0


async def test_send_eof_writes_what_is_pending_first() -> None:
    async with tcp_pair() as (client, server), running(server) as outbox, trio.open_nursery() as nursery:
        for piece in numbered(500):
            outbox.write(piece)
        nursery.start_soon(outbox.send_eof)
        assert await read_all(client) == b"".join(numbered(500))
        await client.send_all(b"still heard")
        assert await outbox.receive_some() == b"still heard"


async def test_only_streams_on_sockets_have_a_socket() -> None:
    ours, _ = trio.testing.memory_stream_pair()
    assert not hasattr(Outbox(ours, limit_bytes=1, write_seconds=1), "socket")
    async with tcp_pair() as (_, server):
        assert Outbox(server, limit_bytes=1, write_seconds=1).socket is server.socket


async def test_two_ends_at_once_do_not_meet_inside_the_stream() -> None:
    async with tcp_pair() as (client, server), running(server) as outbox, trio.open_nursery() as nursery:
        nursery.start_soon(outbox.send_eof)
        nursery.start_soon(outbox.aclose)
        nursery.start_soon(outbox.send_eof)
        assert await client.receive_some() == b""


async def test_tls_carries_the_same_bytes_and_ends_with_a_close_notify() -> None:
    authority = trustme.CA()
    server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("server.test").configure_cert(server_context)
    client_context = ssl.create_default_context()
    authority.configure_trust(client_context)
    pieces = numbered(300)
    async with tcp_pair() as (tcp_client, tcp_server):
        client = trio.SSLStream(tcp_client, client_context, server_hostname="server.test")
        server = trio.SSLStream(tcp_server, server_context, server_side=True)
        async with running(server) as outbox, trio.open_nursery() as nursery:
            assert outbox.is_tls
            assert outbox.socket is tcp_server.socket
            nursery.start_soon(outbox.handshake)
            await client.do_handshake()
            for piece in pieces:
                outbox.write(piece)
            nursery.start_soon(outbox.aclose)
            assert await read_all(client) == b"".join(pieces)  # not https_compatible: a bare end would be an error
            await client.aclose()
