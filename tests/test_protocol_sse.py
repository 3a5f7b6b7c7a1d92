"""F21: events on an HTTP stream survive any split of their bytes and any text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.config import Mode
from respserver.protocol import sse
from respserver.protocol.commands import Create
from respserver.protocol.lane import Lane
from respserver.schema.events import ResponseCompleted
from tests.support.pure import USAGE, emitter, feed, message, read
from tests.support.sse_reader import SseEvent, SseReader

AWKWARD = 'one\ntwo\r\nthree\rfour\u2028five\ndata: six\n\nevent: seven\n🦊 é \0 \\ "'


def stream_of(text: str) -> tuple[bytes, list[bytes]]:
    """A turn's bytes as a stream with comments between, and its events' JSON."""
    lane, emit = Lane(Mode.SHIPPED), emitter()
    lane.begin(Create(request=read()))
    events = [*emit.begin(), *feed(emit, message(text)), *emit.complete(USAGE, 1)]
    bodies = [lane.send_event(event) for event in events]
    frames = [sse.frame(str(event.__struct_config__.tag), body) for event, body in zip(events, bodies, strict=True)]
    return sse.KEEP_ALIVE + sse.KEEP_ALIVE.join(frames) + sse.DONE, bodies


def read_in(pieces: list[bytes]) -> list[SseEvent]:
    reader = SseReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    assert reader.is_between_events
    return events


def test_each_event_names_its_type_and_has_one_line_of_json() -> None:
    stream, bodies = stream_of(AWKWARD)
    *events, done = read_in([stream])
    assert [event.data.encode() for event in events] == bodies
    assert done.data == "[DONE]"
    for event in events:
        assert event.type == json.loads(event.data)["type"]
        assert event.id is None
    texts = [json.loads(event.data).get("text") for event in events]
    assert AWKWARD in texts


def test_the_stream_has_line_feeds_alone_and_no_bare_control_characters() -> None:
    stream, bodies = stream_of(AWKWARD)
    assert b"\r" not in stream
    assert not [body for body in bodies if b"\n" in body or b"\0" in body]


@pytest.mark.slow
def test_a_cut_at_any_position_changes_nothing() -> None:
    stream, _ = stream_of(AWKWARD)
    whole = read_in([stream])
    for position in range(len(stream) + 1):
        assert read_in([stream[:position], stream[position:]]) == whole


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_of_any_size_change_nothing(size: int) -> None:
    stream, _ = stream_of(AWKWARD)
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert read_in(pieces) == read_in([stream])


@pytest.mark.slow
@given(st.text())
def test_any_text_arrives_whole(text: str) -> None:
    stream, _ = stream_of(text)
    events = read_in([stream])
    completed = json.loads(events[-2].data)
    assert completed["type"] == ResponseCompleted.__struct_config__.tag
    assert completed["response"]["output"][0]["content"][0]["text"] == text


def test_a_keep_alive_is_a_comment_and_no_event() -> None:
    reader = SseReader()
    assert reader.feed(sse.KEEP_ALIVE) == []
    assert reader.comments == 1


def test_a_frame_is_two_lines_and_a_blank_one() -> None:
    assert sse.frame("response.created", b'{"a":1}') == b'event: response.created\ndata: {"a":1}\n\n'
