"""The listener: which way a connection goes, what slow and hostile peers can do, and the end of accepting."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.config import Limits
from respserver.metrics import Metrics
from respserver.transport import listener
from respserver.transport.head import Head
from respserver.transport.listener import REFUSAL_SECONDS, Newcomers, Room, serve_connections
from respserver.transport.outbox import Outbox
from tests.support.raw_websocket import RawClient, request

LIMITS = Limits(head_bytes=2048, handshake_seconds=0.1)
PATIENT = Limits(head_bytes=2048, handshake_seconds=5)
GET = b"GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n"

Connect = Callable[[], Awaitable[trio.SocketStream]]


async def http(outbox: Outbox) -> None:
    """Tell the way taken and what can be read."""
    outbox.write(b"http " + await outbox.receive_some())


async def websocket(outbox: Outbox, head: Head) -> None:
    outbox.write(b"websocket " + head.target.encode() + b" ")
    if head.rest:
        outbox.write(await outbox.receive_some())


async def broken(outbox: Outbox) -> None:
    raise ValueError("a bug")


@asynccontextmanager
async def listening(
    *,
    http: Callable[[Outbox], Awaitable[None]] = http,
    limits: Limits = PATIENT,
    metrics: Metrics | None = None,
    tls_context: ssl.SSLContext | None = None,
) -> AsyncIterator[Connect]:
    """A served port; the value connects to it."""
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    serve = partial(
        serve_connections,
        listeners,
        http=http,
        websocket=websocket,
        limits=limits,
        metrics=metrics,
        tls_context=tls_context,
    )
    with trio.fail_after(5):
        async with trio.open_nursery() as connections, trio.open_nursery() as accepting:
            await accepting.start(partial(serve, connections=connections))
            yield partial(trio.testing.open_stream_to_socket_listener, listeners[0])
            accepting.cancel_scope.cancel()


async def talk(connect: Connect, *sent: bytes) -> bytes:
    """Send, and read to the end."""
    async with await connect() as stream:
        for part in sent:
            await stream.send_all(part)
            await trio.testing.wait_all_tasks_blocked()
        return await RawClient(stream).rest()


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ([GET], b"http " + GET),
        ([GET[:9], GET[9:]], b"http " + GET),
        ([GET + b"more"], b"http " + GET + b"more"),
        ([b"hello\r\n\r\n"], b"http hello\r\n\r\n"),
        ([b"\x00\x01\x02\r\n\r\n"], b"http \x00\x01\x02\r\n\r\n"),
        ([request()], b"websocket /v1/responses "),
        ([request()[:50], request()[50:]], b"websocket /v1/responses "),
        ([request(target="/x?y=1") + b"behind"], b"websocket /x?y=1 behind"),
    ],
)
async def test_an_upgrade_goes_one_way_and_every_other_byte_the_other(sent: list[bytes], answer: bytes) -> None:
    async with listening() as connect:
        assert await talk(connect, *sent) == answer


async def test_a_head_that_comes_too_slowly_is_dropped_in_time() -> None:
    async with listening(limits=LIMITS) as connect, await connect() as stream:
        await stream.send_all(GET[:10])
        began = trio.current_time()
        assert await RawClient(stream).rest() == b""
        assert trio.current_time() - began >= LIMITS.handshake_seconds * 0.9


async def test_a_head_has_the_handshake_time_and_no_more(autojump_clock: trio.testing.MockClock) -> None:
    for late in (-1, 1):
        ours, theirs = trio.testing.memory_stream_pair()
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_send_slowly, theirs, PATIENT.handshake_seconds + late)
            head = await Newcomers(PATIENT).first_head(Outbox(ours, limit_bytes=4096, write_seconds=1))
            assert (head is None) == (late > 0)
            assert trio.current_time() - began == pytest.approx(PATIENT.handshake_seconds + min(late, 0))


async def _send_slowly(stream: trio.abc.Stream, seconds: float) -> None:
    await stream.send_all(GET[:10])
    await trio.sleep(seconds)
    await stream.send_all(GET[10:])


async def test_a_head_over_the_limit_gets_431_and_json() -> None:
    async with listening() as connect:
        answer = await talk(connect, b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 9000)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"request_head_too_large"' in answer


@pytest.mark.parametrize("sent", [b"", GET[:10]])
async def test_a_peer_that_leaves_before_its_head_is_complete_is_nothing_special(sent: bytes) -> None:
    async with listening() as connect:
        async with await connect() as stream:
            await stream.send_all(sent)
        assert await talk(connect, GET) == b"http " + GET


async def test_a_handler_that_raises_ends_its_own_connection_only() -> None:
    async with listening(http=broken) as connect:
        assert await talk(connect, GET) == b""
        assert await talk(connect, request()) == b"websocket /v1/responses "


async def test_resets_in_mid_write_leave_the_listener_alone(capsys: pytest.CaptureFixture[str]) -> None:
    async def flood(outbox: Outbox) -> None:
        while True:
            await outbox.send_all(bytes(1 << 16))

    async with listening(http=flood) as connect:
        for _ in range(10):
            stream = await connect()
            await stream.send_all(GET)
            await stream.receive_some(10)
            stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            await stream.aclose()
        assert await talk(connect, request()) == b"websocket /v1/responses "
    assert "Traceback" not in "".join(capsys.readouterr())


@settings(max_examples=20)
@given(sent=st.binary(min_size=1, max_size=60))
def test_no_first_bytes_can_harm_the_server(sent: bytes) -> None:
    async def main() -> None:
        async with listening(limits=LIMITS) as connect:
            async with await connect() as stream:
                await stream.send_all(sent)
                await stream.send_eof()
                await RawClient(stream).rest()
            assert await talk(connect, GET) == b"http " + GET

    trio.run(main)


async def test_when_accepting_is_cancelled_the_port_closes_and_connections_go_on() -> None:
    served = trio.Event()
    let_go = trio.Event()

    async def patient(outbox: Outbox) -> None:
        served.set()
        await let_go.wait()
        await http(outbox)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    with trio.fail_after(5):
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                serve = partial(serve_connections, http=patient, websocket=websocket, limits=PATIENT)
                await accepting.start(partial(serve, listeners, connections=connections))
                stream = await trio.open_tcp_stream("127.0.0.1", port)
                await stream.send_all(GET)
                await served.wait()
                accepting.cancel_scope.cancel()
            with pytest.raises(OSError):
                await trio.open_tcp_stream("127.0.0.1", port)
            let_go.set()
            async with stream:
                assert await RawClient(stream).rest() == b"http " + GET


@pytest.mark.parametrize("sent", [b"", GET[:5]])
async def test_when_accepting_is_cancelled_connections_without_a_head_are_closed(sent: bytes) -> None:
    """They have nothing to go on with, and would hold up the end for all of their time."""
    async with listening(limits=Limits(handshake_seconds=60)) as connect:
        stream = await connect()
        await stream.send_all(sent)
        await trio.testing.wait_all_tasks_blocked()
    async with stream:
        assert await RawClient(stream).rest() == b""


async def test_a_connection_that_was_accepted_at_the_very_end_is_closed_too() -> None:
    newcomers = Newcomers(Limits(handshake_seconds=60))
    newcomers.dismiss()
    stream, _ = trio.testing.memory_stream_pair()
    with trio.fail_after(1):
        assert await newcomers.first_head(Outbox(stream, limit_bytes=4096, write_seconds=1)) is None


async def test_connections_send_small_packets_at_once() -> None:
    seen = []

    async def look(outbox: Outbox) -> None:
        seen.append(outbox.socket.getsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY))

    async with listening(http=look) as connect:
        await talk(connect, GET)
    assert all(seen)
    assert seen


# ---------------------------------------------------------------------------------------- more connections than may be

ONE = Limits(head_bytes=2048, handshake_seconds=5, connections=1)
UPLOAD = b"POST /v1/responses HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{"


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await trio.sleep(0.001)


def patient_until(gate: trio.Event) -> Callable[[Outbox], Awaitable[None]]:
    async def serve(outbox: Outbox) -> None:
        await gate.wait()
        await http(outbox)

    return serve


async def test_a_connection_too_many_gets_503_whatever_it_asks_for_until_there_is_room_again() -> None:
    gate, metrics = trio.Event(), Metrics()
    async with listening(http=patient_until(gate), limits=ONE, metrics=metrics) as connect:
        first = await connect()
        await first.send_all(GET)
        for count, sent in enumerate([GET, UPLOAD, request(), b"hello\r\n\r\n"], 1):
            answer = await talk(connect, sent)
            assert answer.startswith(b"HTTP/1.1 503 ")
            for line in (b"connection: close", b"retry-after: 1", b"content-type: application/json"):
                assert line in answer
            assert b'"code":"too_many_connections"' in answer
            assert metrics.connections_refused == count
        gate.set()
        async with first:
            assert await RawClient(first).rest() == b"http " + GET
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert await talk(connect, request()) == b"websocket /v1/responses "


async def test_a_flood_of_refused_connections_holds_few_sockets_and_the_rest_hear_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "REFUSED_AT_ONCE", 2)
    gate, metrics = trio.Event(), Metrics()
    async with listening(http=patient_until(gate), limits=ONE, metrics=metrics) as connect:
        silent = [await connect() for _ in range(3)]
        await until(lambda: metrics.connections_refused == 2)
        for _ in range(5):
            with contextlib.suppress(trio.BrokenResourceError):  # it may be closed before it has sent anything
                assert await talk(connect, GET) == b""
        await silent[1].send_all(GET)
        assert (await RawClient(silent[1]).rest()).startswith(b"HTTP/1.1 503 ")
        await silent[1].aclose()
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert (await talk(connect, GET)).startswith(b"HTTP/1.1 503 ")
        for stream in silent:
            await stream.aclose()
        gate.set()
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.message for record in warnings] == ["connections_refused"]


async def test_a_refused_connection_has_little_time_to_ask(autojump_clock: trio.testing.MockClock) -> None:
    room = Room(1, Metrics())
    began = trio.current_time()
    for _ in range(3):
        assert room.turn_away()
        with room.refusing():
            await trio.sleep_forever()
    assert trio.current_time() - began == pytest.approx(3 * REFUSAL_SECONDS)


async def test_connections_that_fail_leave_their_room() -> None:
    async with listening(http=broken, limits=ONE) as connect:
        for _ in range(3):
            assert await talk(connect, GET) == b""
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert await talk(connect, request()) == b"websocket /v1/responses "


# ------------------------------------------------------------------------------------------------------------ TLS


@pytest.fixture(scope="module")
def contexts() -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's."""
    authority = trustme.CA()
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("server.test").configure_cert(server)
    client = ssl.create_default_context()
    client.set_alpn_protocols(["h2", "http/1.1"])
    authority.configure_trust(client)
    return server, client


async def test_tls_goes_the_same_ways_and_offers_no_http2(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, client = contexts
    async with listening(tls_context=server) as connect:
        for sent, answer in [(GET, b"http " + GET), (request(), b"websocket /v1/responses ")]:
            stream = trio.SSLStream(await connect(), client, server_hostname="server.test")
            await stream.send_all(sent)
            assert await RawClient(stream).rest() == answer
            assert stream.selected_alpn_protocol() == "http/1.1"
            await stream.aclose()


@pytest.mark.parametrize("sent", [GET, b"", b"\x16\x03\x01"])
async def test_a_peer_that_speaks_no_tls_is_dropped_in_time(
    sent: bytes, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    async with listening(tls_context=contexts[0], limits=LIMITS) as connect, await connect() as stream:
        await stream.send_all(sent)
        assert b"http" not in await RawClient(stream).rest()


async def test_a_connection_too_many_is_told_so_over_tls(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    server, client = contexts
    async with listening(tls_context=server, limits=ONE) as connect, await connect():
        stream = trio.SSLStream(await connect(), client, server_hostname="server.test")
        await stream.send_all(GET)
        assert (await RawClient(stream).rest()).startswith(b"HTTP/1.1 503 ")
        await stream.aclose()
