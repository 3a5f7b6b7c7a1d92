"""The law of appends: what is refused is one error frame and changes nothing, what is taken is taken as a whole, and
the outputs come out in call order, however they came in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from respserver.config import Mode
from respserver.protocol.chain import Pause
from respserver.protocol.commands import AwaitOutputs, Reject, ResumeTurn
from respserver.protocol.connection import Connection, Delivery
from respserver.protocol.states import LaneState
from respserver.schema.events import ResponseDone
from respserver.schema.items import CallOutputItem, MessageItem
from tests.support.pure import (
    Json,
    append,
    assistant,
    call,
    calling,
    create,
    custom_call,
    custom_output,
    emitter,
    feed,
    message,
    output,
    response,
    user,
)

OWED = ["c1", "c2", "c3"]
CALLS = st.sampled_from([*OWED, *OWED, "c9", "a1"])
ITEM_IDS = st.sampled_from([None, None, None, "msg_go", "fc_1", "given"])
ENTRIES = st.one_of(
    st.builds(lambda call_id, item_id: _with_id(output(call_id), item_id), CALLS, ITEM_IDS),
    st.builds(lambda call_id, item_id: _with_id(custom_output(call_id), item_id), CALLS, ITEM_IDS),
    st.builds(call, CALLS),
    st.builds(custom_call, CALLS),
    st.builds(lambda item_id: _with_id(user(), item_id), ITEM_IDS),
    st.sampled_from([assistant("Look."), assistant("Other."), {"type": "reasoning", "summary": []}, {"type": "zzz"}]),
)
FITTING = st.sampled_from(
    [
        [output("c1")],
        [custom_output("c2")],
        [output("c3")],
        [output("c3"), output("c1")],
        [call("c1"), custom_call("c2"), custom_output("c2")],
        [output("c1"), custom_output("c2"), output("c3"), user()],
    ]
)
APPENDS = st.lists(
    st.tuples(
        st.one_of(FITTING, FITTING, st.lists(ENTRIES, max_size=4)),
        st.sampled_from([{}, {}, {"response_id": "resp_1"}, {"response_id": "resp_9"}, {"stream_id": "one"}]),
    ),
    max_size=8,
)


def _with_id(item: Json, item_id: str | None) -> Json:
    return item if item_id is None else {**item, "id": item_id}


def suspended() -> Connection:
    """A connection whose default lane stands at three calls, and whose lane ``one`` has ended."""
    connection = Connection(Mode.PROTOTYPE, "websocket")
    lane = connection.lane
    delivery = connection.receive_message(create(), 0.0)
    assert isinstance(delivery, Delivery)
    lane.begin(delivery.event)
    names = iter(["msg_1", "fc_1", "c1", "ctc_1", "c2", "fc_2", "c3"])
    made = emitter(response=response("resp_1"), new_id=lambda _: next(names))
    calls = [calling("look"), calling("exec", "ls", custom=True), calling("look")]
    feed(made, message("Look."), *calls)
    lane.pause = Pause(
        response_id="resp_1",
        open_calls=made.open_calls,
        emitted=made.since_pause,
        item_ids={"msg_go"},
    )
    lane.send_event(ResponseDone(response=response("resp_1"), required_input=made.required_input))
    assert list(made.open_calls) == OWED
    return connection


def state_of(connection: Connection) -> Any:
    """All that an append may change, as values."""
    lane = connection.lane
    pause = None if lane.pause is None else msgspec.json.encode(lane.pause)
    return lane.state, pause, lane.latest, connection.waiting, set(connection.named), list(lane.dropped)


@pytest.mark.slow
@given(APPENDS)
@example([([output("c1")], {}), ([output("c3")], {}), ([custom_output("c2"), user()], {})])
@example([([output("c1"), output("c9")], {}), ([output("c1"), custom_output("c2"), output("c3")], {})])
def test_a_refused_append_changes_nothing_and_a_taken_one_is_taken_as_a_whole(appends: list[Any]) -> None:
    connection = suspended()
    answered: dict[str, str] = {}
    for number, (entries, fields) in enumerate(appends):
        told = [{**entry, "output": f"{number}"} if "output" in entry else entry for entry in entries]
        before = state_of(connection)
        answer: Any = connection.receive_message(append(*told, **fields), 0.0)
        if isinstance(answer, Delivery):
            answer = answer.lane.begin(answer.event)
        if isinstance(answer, Reject):
            assert 400 <= answer.error.status < 500
            assert state_of(connection) == before
            continue
        assert before[0] is LaneState.SUSPENDED
        brought = {entry["call_id"]: entry["output"] for entry in told if "output" in entry}
        assert brought
        assert not set(brought) & set(answered)
        answered |= brought
        missing = [call_id for call_id in OWED if call_id not in answered]
        if missing:
            assert answer == AwaitOutputs(missing=missing)
            assert connection.lane.state is LaneState.SUSPENDED
            continue
        assert isinstance(answer, ResumeTurn)
        outputs, users = answer.items[: len(OWED)], answer.items[len(OWED) :]
        assert [(item.call_id, item.parts[0].text) for item in outputs if isinstance(item, CallOutputItem)] == [
            (call_id, answered[call_id]) for call_id in OWED
        ]
        assert all(isinstance(item, MessageItem) and item.role == "user" for item in users)
        assert (connection.lane.state, connection.lane.pause) == (LaneState.ACTIVE, None)


def test_the_law_meets_all_kinds_of_answers() -> None:
    """It says something only if its appends are refused, taken in part, and taken to the end."""
    connection = suspended()
    kinds = []
    for entries in ([output("c9")], [output("c1")], [call("c1"), custom_output("c2"), output("c3"), user()]):
        answer = connection.receive_message(append(*entries), 0.0)
        assert isinstance(answer, Delivery)
        kinds.append(type(answer.lane.begin(answer.event)))
    assert kinds == [Reject, AwaitOutputs, ResumeTurn]
