"""The frame meter: what it hands on at once, and the fragments it counts, whatever pieces the bytes come in."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.transport.frame_meter import FRAMES_AT_ONCE, FrameMeter
from tests.support.raw_websocket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, client_frame

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
    meter = FrameMeter()
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
    meter = FrameMeter()
    for byte in client_frame(TEXT, b"\x01" * size, final=False) + PIECE:
        meter.portion(bytes([byte]), 0)
    assert meter.fragments == 2


def test_fragments_are_those_of_the_open_message_and_control_frames_are_none() -> None:
    meter = FrameMeter()
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
