"""What comes is read: known events as structs, others as dicts, errors with their facts."""

from __future__ import annotations

import msgspec
import pytest

from respserver.client import Client, event_type
from respserver.client.wire import api_error, read_frame, read_sse_data, responses_url
from respserver.errors import ConfigError, InvalidRequest
from respserver.schema.events import ErrorEvent
from tests.support.client_servers import (
    NOT_FOUND,
    delta,
)


@pytest.mark.parametrize(
    ("base_url", "websocket", "http"),
    [
        ("http://127.0.0.1:8080/v1", "ws://127.0.0.1:8080/v1/responses", "http://127.0.0.1:8080/v1/responses"),
        ("https://example.com/v1/", "wss://example.com/v1/responses", "https://example.com/v1/responses"),
        ("http://h/v1?model=a", "ws://h/v1/responses?model=a", "http://h/v1/responses?model=a"),
        ("http://h", "ws://h/responses", "http://h/responses"),
    ],
)
def test_one_base_url_gives_both_addresses(base_url, websocket, http):
    assert responses_url(base_url, websocket=True).geturl() == websocket
    assert responses_url(base_url, websocket=False).geturl() == http


def test_a_base_url_that_is_not_https_is_refused_by_name():
    with pytest.raises(ConfigError, match="base_url: 'ws://h/v1'"):
        Client("ws://h/v1")


def test_known_events_become_structs():
    assert read_frame(msgspec.json.encode(delta("Hi"))) == delta("Hi")
    assert read_frame(msgspec.json.encode(NOT_FOUND)) == NOT_FOUND


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"response.hummed","tune":"la"}',
        '{"type":"response.output_text.delta","delta":"Hi"}',
        '{"type":"error","error":{"code":null,"message":"no","type":"x","param":null}}',
        '{"no":"type"}',
    ],
    ids=["unknown", "other-shape", "error-without-status", "untyped"],
)
def test_what_the_schema_does_not_know_stays_a_dict(text):
    event = read_frame(text)
    assert event == msgspec.json.decode(text)
    assert event_type(event) == str(event.get("type"))


@pytest.mark.parametrize("text", ["", "{", "[1]", '"text"', "[DONE]"])
def test_what_is_no_json_object_is_an_error(text):
    with pytest.raises(InvalidRequest):
        read_frame(text)


def test_an_error_in_a_stream_has_its_own_struct():
    event = ErrorEvent(code="server_error", message="no", param=None, error=NOT_FOUND.error)
    assert read_sse_data(msgspec.json.encode(event).decode()) == event


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        (b'{"error":{"message":"no","type":"t","code":"c","param":"p"}}', ("no", 503, "t", "c", "p")),
        (b'{"type":"error","status":429,"message":"no","code":"c"}', ("no", 429, "unknown_error", "c", None)),
        (b'{"error":{"message":"no","code":null}}', ("no", 503, "unknown_error", "unknown_error", None)),
        (b"<html>\xff", ("<html>\ufffd", 503, "unknown_error", "unknown_error", None)),
        (b"", ("the server answered with status 503", 503, "unknown_error", "unknown_error", None)),
    ],
    ids=["nested", "flat", "null-code", "html", "empty"],
)
def test_an_error_keeps_its_facts_in_any_form(body, facts):
    error = api_error(body, 503)
    assert (error.message, error.status, error.type, error.code, error.param) == facts


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"error":{"headers":{"retry-after":"1"}},"headers":{"retry-after":"2"}}', {"retry-after": "1"}),
        (b'{"error":{},"headers":{"retry-after":"2"}}', {"retry-after": "2"}),
        (b'{"error":{}}', {"retry-after": "3"}),
    ],
)
def test_retry_hints_are_taken_from_where_they_stand_closest(body, headers):
    assert api_error(body, 429, [(b"retry-after", b"3")]).headers == headers
