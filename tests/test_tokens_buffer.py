"""The token buffer: it grows at the end, and hands every id over once."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.tokens.buffer import TokenBuffer

token_ids = st.lists(st.integers(0, 2**32 - 1), max_size=4)


def filled(*ids: int) -> TokenBuffer:
    buffer = TokenBuffer()
    buffer.extend(ids)
    return buffer


def test_unseen_ids_are_handed_over_once() -> None:
    buffer = filled(1, 2)
    assert buffer.seen == 0
    assert buffer.unseen() == array("I", [1, 2])
    assert buffer.seen == 2
    assert buffer.unseen() == array("I")
    buffer.extend([3])
    assert buffer.unseen() == array("I", [3])


def test_sampled_ids_count_as_seen() -> None:
    buffer = filled(1)
    buffer.unseen()
    buffer.extend_sampled([2, 3])
    assert (len(buffer), buffer.seen) == (3, 3)
    assert buffer.unseen() == array("I")


def test_sampled_ids_behind_unseen_ones_are_refused_and_not_taken() -> None:
    buffer = filled(1, 2)
    with pytest.raises(ValueError, match="2 ids"):
        buffer.extend_sampled([3])
    assert (len(buffer), buffer.seen) == (2, 0)


def test_a_rewound_buffer_hands_everything_over_again() -> None:
    buffer = filled(1)
    buffer.unseen()
    buffer.extend_sampled([2])
    buffer.rewind()
    assert buffer.unseen() == array("I", [1, 2])


def test_a_fork_is_all_unseen_and_grows_by_itself() -> None:
    buffer = filled(1, 2)
    buffer.unseen()
    copy = buffer.fork()
    copy.extend([3])
    assert copy.unseen() == array("I", [1, 2, 3])
    assert (len(buffer), buffer.seen) == (2, 2)


def test_stored_form_is_little_endian_uint32_from_an_index_on() -> None:
    buffer = filled(7, 1, 0x01020304)
    assert buffer.tobytes(1) == b"\x01\x00\x00\x00\x04\x03\x02\x01"
    assert buffer.tobytes(3) == b""


def test_chunks_come_back_joined_and_unseen() -> None:
    buffer = TokenBuffer.frombytes(filled(1, 2).tobytes(), b"", filled(3).tobytes())
    assert buffer.seen == 0
    assert buffer.unseen() == array("I", [1, 2, 3])


def test_a_cut_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        TokenBuffer.frombytes(b"\x01\x00\x00")


def test_the_stored_form_does_not_depend_on_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of the other byte order swaps on the way out and in."""
    native = filled(1).tobytes()
    monkeypatch.setattr("respserver.tokens.buffer.sys.byteorder", "big")
    assert filled(1).tobytes() == native[::-1]
    assert TokenBuffer.frombytes(native[::-1]).unseen() == array("I", [1])


def test_a_retired_buffer_refuses_every_use() -> None:
    buffer = filled(1)
    buffer.retire()
    uses: list[Callable[[], object]] = [
        lambda: len(buffer),
        lambda: buffer.extend([1]),
        lambda: buffer.extend_sampled([1]),
        buffer.unseen,
        buffer.fork,
        buffer.tobytes,
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="retired"):
            use()


def test_an_unknown_attribute_is_an_ordinary_error() -> None:
    with pytest.raises(AttributeError, match="ids_seen"):
        TokenBuffer().ids_seen  # type: ignore[attr-defined]  # noqa: B018 - the failing look-up is the point


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(["extend", "hand over", "sample", "rewind"]), token_ids), max_size=12))
def test_the_engine_always_knows_exactly_what_counts_as_seen(moves: list[tuple[str, list[int]]]) -> None:
    buffer = TokenBuffer()
    whole: list[int] = []
    engine: list[int] = []
    for move, ids in moves:
        if move == "extend":
            buffer.extend(ids)
            whole += ids
        elif move == "rewind":
            buffer.rewind()
            engine = []
        else:
            engine += buffer.unseen()
            if move == "sample":
                buffer.extend_sampled(ids)
                whole += ids
                engine += ids
        assert buffer.seen == len(engine)
        assert engine == whole[: len(engine)]
        assert TokenBuffer.frombytes(buffer.tobytes()).unseen().tolist() == whole


def test_the_last_id_is_that_of_the_end() -> None:
    buffer = TokenBuffer()
    assert buffer.last is None
    buffer.extend([5, 7])
    assert buffer.last == 7
