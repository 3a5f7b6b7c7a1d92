"""Opening a WebSocket to a peer that is gone, silent or speaks nonsense: a typed error, soon; nothing is left open."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from respserver.client import Client, ConnectionLost
from respserver.client.refusal import REFUSAL_SECONDS
from respserver.errors import ApiError, ConfigError
from tests.support.client_servers import listening, peering
from tests.support.raw_websocket import TEXT, client_frame

HALF_HEAD = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: webso"
BROKEN = b'{"error":{"message":"Come back later.","type":"t","code":"server_is_overloaded","param":null}}'


async def _open(url):
    async with Client(url).connect() as ws:
        return await ws.receive()


def _answer(*lines, body=b""):
    return "\r\n".join([*lines, "", ""]).encode() + body


@pytest.mark.parametrize("leaves", ["end", "reset"])
@pytest.mark.parametrize("sent", [b"", b"HTTP", HALF_HEAD], ids=["nothing", "a-word", "half-a-head"])
async def test_a_server_that_goes_in_the_middle_of_the_handshake_is_a_lost_connection_at_once(sent, leaves):
    async def go(peer):
        await peer.head()
        await peer.stream.send_all(sent)
        if leaves == "reset":
            await peer.reset()

    async with peering(go) as url:
        started = trio.current_time()
        with pytest.raises(ConnectionLost, match="the HTTP connection broke"):
            await _open(url)
        assert trio.current_time() - started < 5


@pytest.mark.parametrize("leaves", ["end", "reset"])
async def test_a_server_that_goes_before_it_has_read_the_request_is_a_lost_connection(leaves):
    async def go(peer):
        if leaves == "reset":
            await peer.reset()

    async with peering(go) as url:
        with pytest.raises(ConnectionLost):
            await _open(url)


@pytest.mark.parametrize("sent", [b"", HALF_HEAD], ids=["nothing", "half-a-head"])
async def test_a_server_that_falls_silent_in_the_handshake_is_given_up_after_a_while(sent, autojump_clock):
    async def fall_silent(peer):
        await peer.head()
        await peer.stream.send_all(sent)
        await peer.until_gone()

    async with peering(fall_silent) as url:
        with pytest.raises(ConnectionLost, match="did not answer the upgrade"):
            await _open(url)


@pytest.mark.parametrize(
    "sent",
    [
        b"220 mail.test ESMTP\r\n\r\n",
        b"\x16\x03\x01\x00\xa5" * 9 + b"\r\n\r\n",
        b"HTTP/1.1 101 X\r\n" + b"a: b\r\n" * 30000,
    ],
    ids=["another-protocol", "tls", "endless-head"],
)
async def test_an_answer_that_is_no_http_is_a_lost_connection(sent):
    async def babble(peer):
        await peer.head()
        await peer.stream.send_all(sent)
        await peer.until_gone()

    async with peering(babble) as url:
        with pytest.raises(ConnectionLost, match="the HTTP connection broke"):
            await _open(url)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"Sec-WebSocket-Accept": "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="}, "does not fit the key"),
        ({"Sec-WebSocket-Accept": None}, "does not fit the key"),
        ({"Upgrade": "h2c"}, "not to a WebSocket"),
        ({"Connection": "keep-alive"}, "not to a WebSocket"),
        ({"Sec-WebSocket-Extensions": "permessage-deflate"}, "not asked for"),
        ({"Sec-WebSocket-Protocol": "chat"}, "not asked for"),
    ],
    ids=lambda value: next(iter(value.items()))[0] if isinstance(value, dict) else "",
)
async def test_an_upgrade_to_something_else_is_a_lost_connection_that_says_why(changes, problem):
    gone = trio.Event()

    async def mislead(peer):
        await peer.accept(**changes)
        assert await peer.until_gone() == []
        gone.set()

    async with peering(mislead) as url:
        with pytest.raises(ConnectionLost, match=problem):
            await _open(url)
        await gone.wait()


async def test_interim_answers_and_a_message_right_behind_the_upgrade_are_taken():
    async def hurry(peer):
        await peer.stream.send_all(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        await peer.accept(behind=client_frame(TEXT, b'{"type":"response.hummed"}', masked=False))
        await peer.until_gone()

    async with peering(hurry) as url:
        assert await _open(url) == {"type": "response.hummed"}


@pytest.mark.parametrize("status", [401, 403, 426, 429, 503])
@pytest.mark.parametrize("framing", ["length", "chunked", "until-the-end"])
async def test_a_refusal_carries_its_status_its_body_and_its_hints(status, framing):
    length, body = {
        "length": (f"Content-Length: {len(BROKEN)}", BROKEN),
        "chunked": ("Transfer-Encoding: chunked", b"%x\r\n%s\r\n0\r\n\r\n" % (len(BROKEN), BROKEN)),
        "until-the-end": ("Connection: close", BROKEN),
    }[framing]

    async def refuse(peer):
        await peer.head()
        await peer.stream.send_all(_answer(f"HTTP/1.1 {status} X", "Retry-After: 7", length, body=body))

    async with peering(refuse) as url:
        with pytest.raises(ApiError, match=r"Come back later\.") as caught:
            await _open(url)
    assert (caught.value.status, caught.value.code) == (status, "server_is_overloaded")
    assert caught.value.headers["retry-after"] == "7"


@pytest.mark.parametrize("cut", ["end", "reset", "silence", "flood"])
async def test_a_refusal_whose_body_does_not_end_well_is_still_the_refusal(cut, autojump_clock):
    async def refuse(peer):
        await peer.head()
        await peer.stream.send_all(
            _answer("HTTP/1.1 503 X", "Retry-After: 7", "Content-Length: 99999999", body=BROKEN[:20])
        )
        while cut == "flood":
            await peer.stream.send_all(bytes(1 << 16))
        if cut == "silence":
            await peer.until_gone()
        if cut == "reset":
            await trio.testing.wait_all_tasks_blocked()
            await peer.reset()

    async with peering(refuse) as url:
        with pytest.raises(ApiError) as caught:
            await _open(url)
    assert (caught.value.status, caught.value.headers["retry-after"]) == (503, "7")
    assert caught.value.message.startswith(BROKEN[:20].decode())
    assert trio.current_time() >= (REFUSAL_SECONDS if cut == "silence" else 0)


@pytest.mark.parametrize("status", [200, 204, 302])
async def test_an_answer_that_is_neither_an_upgrade_nor_an_error_says_its_status_and_not_its_page(status):
    async def welcome(peer):
        await peer.head()
        await peer.stream.send_all(_answer(f"HTTP/1.1 {status} OK", "Location: /login", body=b"<html>Welcome"))

    async with peering(welcome) as url:
        with pytest.raises(ApiError, match=f"the server answered with status {status}$") as caught:
            await _open(url)
    assert (caught.value.status, caught.value.headers["location"]) == (status, "/login")


@pytest.mark.parametrize("where", ["head", "body", "open"])
async def test_opening_may_be_cancelled_wherever_it_waits(where):
    waits, gone = trio.Event(), trio.Event()

    async def stall(peer):
        if where == "open":
            await peer.accept()
        else:
            await peer.head()
        if where == "body":
            await peer.stream.send_all(_answer("HTTP/1.1 503 X", "Content-Length: 9", body=b"half"))
        await trio.testing.wait_all_tasks_blocked()
        waits.set()
        await peer.until_gone()
        gone.set()

    async with peering(stall) as url:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_open, url)
                await waits.wait()
                scope.cancel()
        assert scope.cancelled_caught
        await gone.wait()


@pytest.mark.parametrize("method", ["connect", "create"])
@pytest.mark.parametrize(
    "host", ["no-such-host.invalid", "a..b", "x" * 70], ids=["unknown", "empty-label", "long-label"]
)
async def test_a_name_that_leads_nowhere_is_a_lost_connection(host, method):
    async with Client(f"http://{host}/v1") as client:
        with pytest.raises(ConnectionLost, match=f"cannot connect to {host[:20]}"):
            await (_open(client.base_url) if method == "connect" else client.create(model="sim"))


@pytest.mark.parametrize("sends", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["hangs-up", "speaks-plainly"])
async def test_a_server_that_does_not_speak_tls_is_a_lost_connection(sends):
    async def speak(stream):
        async with stream:
            await stream.receive_some()
            await stream.send_all(sends)

    async with listening(speak) as url:
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            await _open(url.replace("http", "https", 1))


async def test_a_server_that_is_silent_in_the_tls_handshake_is_given_up_after_a_while(autojump_clock):
    async def stay(peer):
        while await peer.stream.receive_some():
            pass

    async with peering(stay) as url:
        with pytest.raises(ConnectionLost, match="cannot connect to"):
            await _open(url.replace("http", "https", 1))


@pytest.mark.parametrize(
    "url", ["http:///v1", "http://h:port/v1", "http://h:99999/v1", "http://[::1/v1", "http://h/v 1"]
)
def test_a_base_url_that_leads_nowhere_is_refused_before_anything_is_sent(url):
    with pytest.raises(ConfigError, match="base_url"):
        Client(url)


@pytest.mark.parametrize("key", ["sk-1\n", "sk 1", "ключ"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key):
    with pytest.raises(ConfigError, match="api_key") as caught:
        Client("http://h/v1", key)
    assert key not in str(caught.value)
