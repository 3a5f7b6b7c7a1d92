"""The newest part of a context that fits: whole items, calls with their outputs, and what must stay."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.schema.items import OpaqueItem
from respserver.tokens.frames import Frame, newest, read_frames
from respserver.tokens.render import reasoning_pieces
from respserver.tokens.special import Special
from tests.support.sim_kit import called, output, said, template, user

Part = tuple[str, list[int]]
NAMES = st.sampled_from(["look", "fetch", "fs.run"])


def thought(text: str) -> list[int]:
    return template().tokenise(reasoning_pieces([text]))


def opaque(**fields: Any) -> list[int]:
    item = OpaqueItem(raw=json.dumps(fields).encode(), kind=fields.get("type", ""))
    return template().tokenise(template().item(item))


def joined(*parts: list[int]) -> array[int]:
    return array("I", [token for part in parts for token in part])


def cut(room: int, *parts: list[int]) -> list[list[int]]:
    """The parts that are left, whole."""
    left = newest(joined(*parts), template(), room).tolist()
    kept = []
    for part in parts:
        if left[: len(part)] == part:
            kept.append(part)
            del left[: len(part)]
    assert not left, "a part was cut inside"
    return kept


OLD, NEW = user("an old question"), user("a new one")
ANSWER = said("an old answer")


def test_what_fits_stays_as_it_is() -> None:
    assert cut(10_000, OLD, ANSWER, NEW) == [OLD, ANSWER, NEW]
    assert newest(array("I"), template(), 0) == array("I")


def test_the_oldest_go_first_and_no_more_than_must() -> None:
    assert cut(len(ANSWER) + len(NEW), OLD, ANSWER, NEW) == [ANSWER, NEW]
    assert cut(len(NEW), OLD, ANSWER, NEW) == [NEW]


def test_the_newest_user_message_stays_even_if_it_does_not_fit() -> None:
    assert cut(0, OLD, ANSWER, NEW) == [NEW]


def test_a_long_tool_loop_loses_its_middle_and_keeps_the_question_and_the_last_step() -> None:
    steps = [[called("look", f'{{"n":{n}}}'), output(f"result {n}", name="look")] for n in range(6)]
    parts = [part for step in steps for part in step]
    last = len(NEW) + sum(map(len, steps[-1]))
    assert cut(last, OLD, NEW, *parts) == [NEW, *steps[-1]]
    assert cut(last + sum(map(len, steps[-2])), OLD, NEW, *parts) == [NEW, *steps[-2], *steps[-1]]


def test_reasoning_and_messages_go_with_the_call_that_they_led_to() -> None:
    stretch = [thought("hm"), said("I look."), called("look"), called("fetch"), output("a", name="look")]
    stretch.append(output("b", name="fetch"))
    for room in range(len(NEW), len(NEW) + sum(map(len, stretch))):
        assert cut(room, *stretch, NEW) == [NEW]


def test_an_output_that_came_late_goes_with_its_call() -> None:
    late = [called("look", '{"slow":1}'), ANSWER]
    parts = [OLD, *late, NEW, output("finally", name="look"), said("thanks"), user("and now?")]
    assert cut(len(user("and now?")) + len(said("thanks")) + len(NEW), *parts) == [
        NEW,
        said("thanks"),
        user("and now?"),
    ]


def test_what_was_just_said_stays_with_its_call_however_old_that_is() -> None:
    parts = [OLD, called("look", '{"slow":1}'), user("meanwhile"), ANSWER, output("finally", name="look")]
    assert cut(0, *parts) == [called("look", '{"slow":1}'), user("meanwhile"), output("finally", name="look")]


def test_a_cut_call_owes_nothing_and_takes_no_later_output() -> None:
    broken = called("look", '{"n":')
    parts = [OLD, broken, NEW, called("look", '{"n":1}'), output("one", name="look")]
    assert cut(len(NEW) + len(parts[3]) + len(parts[4]), *parts) == parts[2:]


def test_tools_that_items_put_on_offer_stay() -> None:
    offer = [Special.START, *template().tokenise(["tools"]), Special.SEP, *template().tokenise(["[]"]), Special.END]
    assert cut(0, OLD, [int(token) for token in offer], ANSWER, NEW) == [offer, NEW]


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ({"type": "shell_call", "call_id": "c"}, {"type": "shell_call_output", "call_id": "c"}),
        ({"type": "mcp_approval_request", "id": "a"}, {"type": "mcp_approval_response", "approval_request_id": "a"}),
    ],
)
def test_kinds_that_are_not_read_pair_by_their_json(asked: dict[str, str], given: dict[str, str]) -> None:
    between = opaque(type="web_search_call", id="ws_1")
    parts = [opaque(**asked), between, opaque(**given), NEW]
    rest = len(between) + len(NEW)
    assert cut(rest, *parts) == [between, NEW]
    assert cut(rest - 1, *parts) == [NEW]


@pytest.mark.parametrize("text", ["[1]", "{", '"x"'])
def test_an_item_that_is_no_object_is_an_item_all_the_same(text: str) -> None:
    odd = template().tokenise([Special.START, "item", Special.SEP, text, Special.END])
    assert cut(len(NEW), odd, NEW) == [NEW]


def test_ids_outside_of_any_frame_belong_to_the_one_before() -> None:
    stray = template().tokenise(["stray"])
    ids = joined(stray, OLD, stray, NEW)
    assert [(frame.start, frame.end) for frame in read_frames(ids, template())] == [
        (0, len(stray)),
        (len(stray), len(ids) - len(NEW)),
        (len(ids) - len(NEW), len(ids)),
    ]
    assert newest(joined(OLD, [int(Special.START)]), template(), 0)[-1] == Special.START


@st.composite
def turns(draw: st.DrawFn) -> list[list[int]]:
    """A history as chained or resent: questions, thoughts, answers, parallel calls and their outputs."""
    parts: list[list[int]] = []
    for number in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            parts.append(user(f"question {number}"))
        if draw(st.booleans()):
            parts.append(thought(f"thought {number}"))
        if draw(st.booleans()):
            parts.append(said(f"answer {number}"))
        names = draw(st.lists(NAMES, max_size=3))
        calls = [called(name, f'{{"n":{number}{at}}}') for at, name in enumerate(names)]
        outputs = [output(f"output {number}{at}", name=name) for at, name in enumerate(names)]
        if draw(st.booleans()):
            parts += calls + outputs
        else:
            parts += [part for pair in zip(calls, outputs, strict=True) for part in pair]
    return parts


def keys(frames: list[Frame]) -> tuple[list[object], list[object]]:
    return (
        sorted(str(frame.calls) for frame in frames if frame.calls),
        sorted(str(frame.answers) for frame in frames if frame.answers),
    )


@given(turns(), st.integers(0, 300))
def test_a_cut_is_whole_items_in_order_with_every_call_and_its_output(parts: list[list[int]], room: int) -> None:
    kept = cut(room, *parts)
    frames = read_frames(joined(*kept), template())
    assert len(frames) == len(kept)
    calls, answers = keys(frames)
    assert calls == answers
    users = [frame for frame in read_frames(joined(*parts), template()) if frame.role == "user"]
    if users:
        assert joined(*parts)[users[-1].start : users[-1].end].tolist() in kept
    size = sum(map(len, kept))
    assert kept == cut(max(room, size), *parts)  # cutting is decided by what is left alone


@given(turns())
def test_more_room_never_keeps_less(parts: list[list[int]]) -> None:
    sizes = [len(newest(joined(*parts), template(), room)) for room in range(0, len(joined(*parts)) + 2, 3)]
    assert sizes == sorted(sizes)


@given(st.lists(turns(), max_size=4), st.integers(0, 120))
def test_looking_at_the_end_alone_finds_the_same(histories: list[list[list[int]]], room: int) -> None:
    ids = joined(*(part for parts in histories for part in parts))
    assert newest(ids, template(), room, has_tools=False) == newest(ids, template(), room)


def test_only_the_end_of_a_long_history_is_looked_at() -> None:
    class Watched(array):  # type: ignore[type-arg]  # no generic at run time
        longest = 0

        def __getitem__(self, at: Any) -> Any:
            found = super().__getitem__(at)
            Watched.longest = max(Watched.longest, len(found) if isinstance(at, slice) else 0)
            return found

    parts = [part for n in range(500) for part in (user(f"question {n}"), said(f"answer {n}"))]
    room = 5 * len(parts[-1])
    left = newest(Watched("I", joined(*parts, NEW)), template(), room, has_tools=False)
    assert 0 < len(left) <= room
    assert Watched.longest <= 2 * room
