"""The frame meter: what it hands on at once, and the fragments it counts, whatever pieces the bytes come in."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.transport.frame_meter import FRAMES_AT_ONCE, MAX_FRAGMENTS, TOO_MANY_FRAGMENTS, FrameMeter, too_big
from tests.support.raw_websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, client_frame

NO_LIMIT = 1 << 62
PIECE = client_frame(CONTINUATION, b"", final=False)

frames = st.builds(
    client_frame,
    st.sampled_from([CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG, 3]),
    st.integers(0, 70_000).map(bytes) | st.binary(max_size=200),
    final=st.booleans(),
    masked=st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(frames, max_size=40), st.lists(st.integers(0, 4000), max_size=6))
def test_every_byte_is_handed_on_once_and_in_order_and_few_frames_at_a_time(sent: list[bytes], cuts: list[int]) -> None:
    meter = FrameMeter(NO_LIMIT)
    ends = list(itertools.accumulate(map(len, sent)))
    data = b"".join(sent)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    for begin, end in itertools.pairwise(places):
        start = begin
        while start < end:
            after = begin + meter.portion(data[begin:end], start - begin)
            assert start < after <= end
            assert sum(start < frame_end <= after for frame_end in ends) <= FRAMES_AT_ONCE
            start = after


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_a_frame_of_any_size_is_followed_to_its_end_byte_by_byte(size: int) -> None:
    meter = FrameMeter(NO_LIMIT)
    for byte in client_frame(TEXT, b"\x01" * size, final=False) + PIECE:
        meter.portion(bytes([byte]), 0)
    assert meter.fragments == 2


def test_fragments_are_those_of_the_open_message_and_control_frames_are_none() -> None:
    meter = FrameMeter(NO_LIMIT)
    for sent, fragments in (
        (client_frame(TEXT, b"x"), 0),
        (client_frame(TEXT, b"x", final=False), 1),
        (PIECE, 2),
        (client_frame(PING, b"x"), 2),
        (client_frame(PONG), 2),
        (PIECE, 3),
        (client_frame(CONTINUATION, b"x"), 0),
        (PIECE, 1),
    ):
        assert meter.portion(sent, 0) == len(sent)
        assert meter.fragments == fragments


LIMIT = 1000


@pytest.mark.parametrize(
    ("sent", "is_over"),
    [
        ([client_frame(TEXT, bytes(LIMIT))] * 3, False),
        ([client_frame(TEXT, bytes(LIMIT + 1))], True),
        ([client_frame(TEXT, bytes(400), final=False), client_frame(CONTINUATION, bytes(600))] * 2, False),
        ([client_frame(TEXT, bytes(400), final=False), client_frame(CONTINUATION, bytes(601))], True),
        ([client_frame(TEXT, bytes(LIMIT), final=False), client_frame(PING, b"x"), client_frame(CONTINUATION)], False),
        ([client_frame(TEXT, bytes(LIMIT + 1)), client_frame(TEXT, b"small")], True),
    ],
)
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_message_may_have_so_many_bytes_in_all_its_frames(sent: list[bytes], is_over: bool, size: int) -> None:
    meter = FrameMeter(LIMIT)
    data = b"".join(sent)
    for start in range(0, len(data), size):
        meter.follow(data[start : start + size])
    assert meter.excess == (too_big(LIMIT) if is_over else "")


def test_a_frame_that_announces_too_much_is_over_the_limit_before_any_of_it_has_come() -> None:
    meter = FrameMeter(LIMIT)
    head = client_frame(TEXT, bytes(1 << 16))[:14]
    meter.follow(head[:9])
    assert not meter.excess
    meter.follow(head[9:])
    assert meter.excess == too_big(LIMIT)


def test_a_message_may_have_so_many_fragments() -> None:
    meter = FrameMeter(NO_LIMIT)
    start = client_frame(TEXT, final=False)
    for _ in range(2):
        meter.follow(start + PIECE * (MAX_FRAGMENTS - 2) + client_frame(CONTINUATION))
        assert not meter.excess
    meter.follow(start + PIECE * (MAX_FRAGMENTS - 1) + client_frame(CONTINUATION))
    assert meter.excess == TOO_MANY_FRAGMENTS
