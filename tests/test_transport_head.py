"""Request heads: told apart whatever the bytes, bounded, and refused in HTTP that a client can read."""

from __future__ import annotations

import json

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.errors import ApiError, InvalidApiKey, QueueFull, WebSocketDisabled
from respserver.transport.head import NOWHERE, Head, HeadReader, HeadTooLarge, answer, origin_form
from tests.support.raw_websocket import request

LIMIT = 4096


def read(data: bytes, limit: int = LIMIT) -> Head | None:
    return HeadReader(limit).feed(data)


@pytest.mark.parametrize(
    ("data", "upgrades"),
    [
        (request(), True),
        (request(Connection="Upgrade", Upgrade="WebSocket"), True),
        (request(Connection="close, UPGRADE"), True),
        (request(Upgrade="h2c, websocket"), True),
        (request(Sec_WebSocket_Key=None, Sec_WebSocket_Version=None), True),
        (request(Connection="keep-alive"), False),
        (request(Upgrade=None), False),
        (request(Upgrade="h2c"), False),
        (request("POST"), False),
        (request().replace(b"HTTP/1.1", b"HTTP/1.0"), False),
        (b"PRI * HTTP/2.0\r\n\r\n", False),
        (b"\x16\x03\x01\x02\x00\x01\x00", False),
        (b"hello\r\n\r\n", False),
    ],
)
def test_an_upgrade_is_told_from_everything_else(data: bytes, upgrades: bool) -> None:
    head = read(data)
    assert head is not None
    assert head.upgrades is upgrades
    assert head.raw + head.rest == data


def test_target_and_headers_come_as_they_were_sent_with_lower_case_names() -> None:
    head = read(request(target="/v1/responses?model=m", X_Name="Grüß"))
    assert head is not None
    assert head.target == "/v1/responses?model=m"
    assert ("x-name", "Grüß".encode().decode("latin-1")) in head.headers


@settings(max_examples=50)
@given(behind=st.binary(max_size=50), cuts=st.lists(st.integers(1, 40), min_size=20, max_size=20))
def test_a_head_in_pieces_is_the_head_at_once_and_what_is_behind_it_is_kept(behind: bytes, cuts: list[int]) -> None:
    data = request() + behind
    reader = HeadReader(LIMIT)
    given_bytes, head = b"", None
    for cut in [*cuts, len(data)]:
        piece = data[len(given_bytes) : len(given_bytes) + cut]
        given_bytes += piece
        head = reader.feed(piece) if piece else None
        if head is not None:
            break
    assert head is not None
    assert (head.raw, head.raw + head.rest) == (request(), given_bytes)


@given(data=st.binary(max_size=200))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    head = read(data)
    assert head is None or head.raw + head.rest == data


@pytest.mark.parametrize("ended", [True, False])
def test_a_head_over_the_limit_is_refused_whether_it_ends_or_not(ended: bool) -> None:
    data = request(X_Long="x" * LIMIT)
    with pytest.raises(HeadTooLarge) as caught:
        read(data if ended else data[:-1])
    assert caught.value.status == 431


def test_a_large_body_behind_a_small_head_is_not_a_large_head() -> None:
    post = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9000\r\n\r\n"
    head = read(post + bytes(9000))
    assert head is not None
    assert len(head.rest) == 9000


@pytest.mark.parametrize(
    "error",
    [InvalidApiKey(given=True), WebSocketDisabled(), QueueFull(2), HeadTooLarge(1), ApiError("?", status=599)],
)
def test_an_answer_is_one_complete_response_that_ends_the_connection(error: ApiError) -> None:
    parser = h11.Connection(h11.CLIENT)
    parser.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    parser.send(h11.EndOfMessage())
    parser.receive_data(answer(error))
    response, body, end = parser.next_event(), parser.next_event(), parser.next_event()
    assert isinstance(response, h11.Response)
    assert isinstance(body, h11.Data)
    assert isinstance(end, h11.EndOfMessage)
    fields = {name.decode(): value.decode() for name, value in response.headers}
    assert response.status_code == error.status
    assert (fields["connection"], fields["content-type"]) == ("close", "application/json")
    assert error.headers.items() <= fields.items()
    assert json.loads(bytes(body.data))["error"]["code"] == error.code
    assert ("upgrade" in fields) is (error.status == 426)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/v1/responses?model=m", "/v1/responses?model=m"),
        ("//[", "//["),
        ("//host/v1/responses", "//host/v1/responses"),
        ("http://host:1/v1/responses?a=b", "/v1/responses?a=b"),
        ("ws://host", "/"),
        ("http://[/v1/responses", NOWHERE),
        ("v1/responses", NOWHERE),
        ("?x", NOWHERE),
        ("*", NOWHERE),
        ("host:80", NOWHERE),
    ],
)
def test_a_target_leads_to_a_path_or_nowhere(target: str, path: str) -> None:
    assert origin_form(target) == path


@given(target=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1))
def test_no_target_raises_and_each_gives_a_path(target: str) -> None:
    assert origin_form(target).startswith("/")
