"""One open WebSocket and a peer that breaks off, floods, babbles or stays: whoever waits learns of it."""

from __future__ import annotations

import msgspec
import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st
from wsproto.events import CloseConnection, Pong, TextMessage

from respserver.client import Client, ConnectionLost
from respserver.client.websocket import CLOSE_SECONDS
from respserver.errors import InvalidRequest
from tests.support.client_servers import ANSWER, collect, completed, created, delta, peering
from tests.support.raw_websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, client_frame

GOODBYE = b"\x03\xe9going"
"""1001, and why."""


def text(event):
    return msgspec.json.encode(event)


@pytest.mark.parametrize("leaves", ["end", "reset"])
@pytest.mark.parametrize(
    "sent",
    [b"", client_frame(TEXT, b'{"type":"response.hummed"}', masked=False)[:9], b"\x81\x7f\x00", b"\x01\x02{}"],
    ids=["between-frames", "in-a-payload", "in-a-head", "between-fragments"],
)
async def test_a_connection_that_breaks_is_lost_to_everybody_and_after_what_came_before(sent, leaves):
    async def go(peer):
        await peer.accept()
        await peer.events()
        await peer.send(TEXT, text(created()))
        await peer.stream.send_all(sent)
        await trio.testing.wait_all_tasks_blocked()
        if leaves == "reset":
            await peer.reset()

    async with peering(go) as url, Client(url).connect() as ws:
        turn = ws.turn(model="sim", input="Hi")
        assert await anext(turn) == created()
        for step in (turn.__anext__, ws.receive, ws.__anext__):
            with pytest.raises(ConnectionLost, match="1006 the connection broke") as caught:
                await step()
            assert caught.value.code == 1006
        with pytest.raises(ConnectionLost):
            await ws.send({})
        assert (ws.close_code, ws.close_reason) == (1006, "the connection broke")


@pytest.mark.parametrize(("code", "ends"), [(1000, True), (1001, True), (1008, False), (1009, False), (1011, False)])
async def test_iteration_ends_with_a_server_that_is_done_and_raises_for_one_that_gives_up(code, ends):
    async def close(peer):
        await peer.accept()
        await peer.send(TEXT, text(created()))
        await peer.send(CLOSE, code.to_bytes(2, "big") + b"why")
        (answer,) = await peer.until_gone()
        assert answer.code == code

    async with peering(close) as url, Client(url).connect() as ws:
        assert await anext(ws) == created()
        with pytest.raises(StopAsyncIteration if ends else ConnectionLost):
            await anext(ws)
        with pytest.raises(ConnectionLost, match=f"{code} why") as caught:
            await ws.receive()
        assert caught.value.code == code


async def test_iteration_ends_with_a_close_of_ones_own_whatever_its_code():
    async def stay(peer):
        await peer.accept()
        await peer.until_gone()

    async with peering(stay) as url, Client(url).connect() as ws:
        await ws.aclose(4000, "enough")
        assert await collect(ws) == []
        assert (ws.close_code, ws.close_reason) == (4000, "enough")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"\x83\x00", 1002),
        (b"\xc1\x00", 1002),
        (client_frame(TEXT, b"{}"), 1002),
        (b"\x80\x02{}", 1002),
        (b"\x01\x01{\x81\x01}", 1002),
        (b"\x09\x00", 1002),
        (b"\x89\x7e\x00\x7e" + bytes(126), 1002),
        (b"\x88\x01\x03", 1002),
        (b"\x88\x02\x00\x07", 1002),
        (b"\x88\x02\x03\xee", 1002),
        (b"\x88\x03\x03\xe8\xff", 1007),
        (b"\x81\x02\xc3\x28", 1007),
    ],
    ids=["opcode", "reserved-bit", "masked", "loose-continuation", "message-in-message", "cut-ping", "long-ping",
         "short-close", "close-code", "close-code-1006", "close-text", "no-utf8"],
)  # fmt: skip
async def test_frames_that_break_the_protocol_are_answered_by_a_close_and_lose_the_connection(sent, code):
    answers = []

    async def babble(peer):
        await peer.accept()
        await peer.stream.send_all(sent)
        answers.extend(await peer.until_gone())

    async with peering(babble) as url, Client(url).connect() as ws:
        with pytest.raises(ConnectionLost) as caught:
            await ws.receive()
        assert caught.value.code == code
        await trio.testing.wait_all_tasks_blocked()
    assert [answer.code for answer in answers] == [code]


@settings(max_examples=40)
@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6))
def test_whatever_bytes_come_only_our_errors_come_out(chunks):
    async def main():
        async def babble(peer):
            await peer.accept()
            for chunk in chunks:
                await peer.stream.send_all(chunk)

        async with peering(babble) as url, Client(url).connect() as ws:
            while True:
                try:
                    await ws.receive()
                except InvalidRequest:
                    pass
                except ConnectionLost:
                    break

    trio.run(main)


async def test_a_message_that_is_too_big_closes_with_1009_before_it_has_all_come(monkeypatch):
    monkeypatch.setattr("respserver.client.websocket.MESSAGE_BYTES", 1000)
    answers = []

    async def boast(peer):
        await peer.accept()
        await peer.send(TEXT, text(delta("x" * 700)))
        await peer.stream.send_all(b"\x81\x7f" + (1 << 40).to_bytes(8, "big") + b"x" * 1001)
        answers.extend(await peer.until_gone())

    async with peering(boast) as url, Client(url).connect() as ws:
        assert await ws.receive() == delta("x" * 700)
        with pytest.raises(ConnectionLost) as caught:
            await ws.receive()
        assert caught.value.code == 1009
    assert [answer.code for answer in answers] == [1009]


async def test_fragments_make_one_message_and_empty_ones_nothing():
    async def crumble(peer):
        await peer.accept()
        for part in (b'{"type":', b"", b'"response.', b"", b'hummed"}'):
            opcode = TEXT if part.endswith(b":") else CONTINUATION
            await peer.send(opcode, part, final=part.endswith(b"}"))
            await peer.send(PING)
            await peer.send(PONG, b"unasked")
        await peer.send(BINARY, b'{"type":"response.whistled"}')
        await peer.until_gone()

    async with peering(crumble) as url, Client(url).connect() as ws:
        assert await ws.receive() == {"type": "response.hummed"}
        assert await ws.receive() == {"type": "response.whistled"}


async def test_pings_are_answered_while_nobody_waits_for_events():
    answered = trio.Event()

    async def ping(peer):
        await peer.accept()
        await peer.send(PING, b"there?")
        assert await peer.events() == [Pong(payload=b"there?")]
        answered.set()
        await peer.until_gone()

    async with peering(ping) as url, Client(url).connect():
        await answered.wait()


@pytest.mark.slow  # so many have to fill what the system keeps
async def test_a_flood_of_pings_whose_pongs_are_not_read_holds_up_no_event():
    async def flood(peer):
        await peer.accept()
        peer.stream.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 1)
        for _ in range(12):
            await peer.stream.send_all(client_frame(PING, b"p" * 125, masked=False) * 1000)
        await peer.send(TEXT, text(completed(ANSWER)))
        await over.wait()

    over = trio.Event()
    async with peering(flood) as url, Client(url).connect() as ws:
        assert await ws.receive() == completed(ANSWER)
        over.set()


async def test_a_ping_behind_our_close_does_no_harm():
    """The peer can't know yet that we have said goodbye."""

    async def cross(peer):
        await peer.accept()
        (close,) = await peer.events()
        assert isinstance(close, CloseConnection)
        await peer.send(PING, b"there?")
        await peer.send(TEXT, text(created()))
        await peer.send(CLOSE, GOODBYE)
        assert await peer.events() == []

    async with peering(cross) as url, Client(url).connect():
        pass


async def test_frames_behind_the_peers_close_are_not_looked_at():
    async def go_on(peer):
        await peer.accept()
        await peer.send(CLOSE, GOODBYE)
        await peer.stream.send_all(
            client_frame(PING, masked=False) + client_frame(CLOSE, GOODBYE, masked=False) + b"\xff"
        )
        await peer.until_gone()

    async with peering(go_on) as url, Client(url).connect() as ws:
        with pytest.raises(ConnectionLost, match="1001 going"):
            await ws.receive()


async def test_a_peer_that_closes_but_does_not_hang_up_is_left_after_a_while(autojump_clock):
    async def stay(peer):
        await peer.accept()
        await peer.send(CLOSE, GOODBYE)
        await peer.events()
        assert await peer.events() == []  # the client has hung up
        left.set()

    left = trio.Event()
    async with peering(stay) as url, Client(url).connect():
        await left.wait()
        assert trio.current_time() >= CLOSE_SECONDS


async def test_a_send_to_a_peer_that_says_goodbye_and_reads_no_more_is_given_up(autojump_clock):
    async def turn_away(peer):
        await peer.accept()
        await trio.testing.wait_all_tasks_blocked()
        await peer.send(CLOSE, GOODBYE)
        await trio.sleep_forever()

    async with peering(turn_away) as url, Client(url).connect() as ws:
        with pytest.raises(ConnectionLost, match="1001 going"):
            await ws.send_text("x" * (1 << 23))


async def test_leaving_does_not_wait_long_for_a_send_of_somebody_elses_that_is_stuck(autojump_clock):
    async def deaf(peer):
        await peer.accept()
        await trio.sleep_forever()

    lost = []

    async def send(ws):
        with pytest.raises(ConnectionLost) as caught:
            await ws.send_text("x" * (1 << 23))
        lost.append(caught.value.code)

    async with peering(deaf) as url, trio.open_nursery() as nursery:
        async with Client(url).connect() as ws:
            nursery.start_soon(send, ws)
            await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() <= 2 * CLOSE_SECONDS
    assert lost == [1000]


async def test_a_send_that_is_cancelled_in_the_middle_loses_the_connection_instead_of_sending_half_a_message():
    seen = []

    async def look_away(peer):
        await peer.accept()
        await cancelled.wait()
        seen.extend(await peer.until_gone())

    cancelled = trio.Event()
    async with peering(look_away) as url, Client(url).connect() as ws:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ws.send_text, "x" * (1 << 23))
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        cancelled.set()
        with pytest.raises(ConnectionLost):
            await ws.send({})
        with pytest.raises(ConnectionLost, match="1006"):
            await ws.receive()
    assert not any(event.message_finished for event in seen)


async def test_a_send_that_was_cancelled_before_it_began_changes_nothing():
    async def listen(peer):
        await peer.accept()
        assert await peer.events() == [TextMessage(data="second", message_finished=True, frame_finished=True)]
        await peer.send(TEXT, text(created()))
        await peer.until_gone()

    async with peering(listen) as url, Client(url).connect() as ws:
        with trio.CancelScope() as scope:
            scope.cancel()
            await ws.send_text("first")
        await ws.send_text("second")
        assert await ws.receive() == created()


async def test_a_turn_that_could_not_be_sent_has_no_events_to_wait_for():
    async def listen(peer):
        await peer.accept()
        await peer.until_gone()

    async with peering(listen) as url, Client(url).connect() as ws:
        turn = ws.turn(model="sim", input="Hi")
        with trio.CancelScope() as scope:
            scope.cancel()
            await anext(turn)
        assert await collect(turn) == []


async def test_a_text_that_is_no_unicode_is_the_callers_mistake_and_leaves_the_connection_alone():
    async def listen(peer):
        await peer.accept()
        assert [event.data for event in await peer.events()] == ["fine"]
        await peer.until_gone()

    async with peering(listen) as url, Client(url).connect() as ws:
        with pytest.raises(UnicodeEncodeError):
            await ws.send_text("\ud800")
        await ws.send_text("fine")


async def test_waiting_for_an_event_may_be_cancelled_and_the_next_one_is_not_lost():
    async def tell(peer):
        await peer.accept()
        await peer.events()
        await peer.send(TEXT, text(created()))
        await peer.until_gone()

    async with peering(tell) as url, Client(url).connect() as ws:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ws.receive)
                await trio.testing.wait_all_tasks_blocked()
                scope.cancel()
        await ws.send({})
        assert await ws.receive() == created()


async def test_a_burst_that_nobody_reads_is_dropped_when_leaving():
    async def burst(peer):
        await peer.accept()
        for _ in range(200):
            await peer.send(TEXT, text(created()))
        assert isinstance((await peer.until_gone())[-1], CloseConnection)

    async with peering(burst) as url, Client(url).connect():
        await trio.testing.wait_all_tasks_blocked()
