"""A lane: order of turns, the one way out, the connection cache's rules, appends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respserver.config import Mode
from respserver.errors import InvalidField, NoToolCall, QueueFull, ServerError
from respserver.protocol.chain import Latest, Pause
from respserver.protocol.commands import Append, AwaitOutputs, Create, Reject, ResumeTurn, StartTurn
from respserver.protocol.lane import Lane, error_detail, error_frame
from respserver.protocol.states import LaneState
from respserver.schema.codec import encode
from respserver.schema.events import (
    ResponseCompleted,
    ResponseCreated,
    ResponseDone,
    ResponseFailed,
    ResponseInProgress,
)
from respserver.schema.request import AppendRequest
from respserver.schema.tools import NO_TOOLS
from tests.support.pure import Json, items, latest, open_calls, output, read, response, sent, user


def create(parent: str | None = None, **fields: Any) -> Create:
    request = read(previous_response_id=parent, **fields)
    return Create(request=request, previous_response_id=parent)


def faulty(parent: str | None = None) -> Create:
    return Create(request=None, previous_response_id=parent, error=InvalidField("input", "wrong."))


def append(*entries: Json, response_id: str | None = None) -> Append:
    return Append(request=AppendRequest(items=items(*entries), response_id=response_id))


def start(lane: Lane, event: Create) -> StartTurn:
    command = lane.begin(event)
    assert isinstance(command, StartTurn)
    return command


def complete(lane: Lane, response_id: str) -> Latest:
    """End the running turn well."""
    entry = latest(response_id)
    lane.publish(entry)
    lane.send_event(ResponseCompleted(response=response(response_id)))
    return entry


def fail(lane: Lane) -> None:
    lane.evict()
    lane.send_event(ResponseFailed(response=response()))


def lane_at(response_id: str, mode: Mode = Mode.SHIPPED) -> Lane:
    """An idle lane whose latest response is this."""
    lane = Lane(mode)
    start(lane, create())
    complete(lane, response_id)
    return lane


def suspended(*call_ids: str) -> Lane:
    """A prototype lane whose turn waits for these calls."""
    lane = Lane(Mode.PROTOTYPE)
    start(lane, create())
    lane.pause = Pause(response_id="resp_1", open_calls=open_calls(*call_ids), emitted=[])
    lane.send_event(ResponseDone(response=response(), required_input=[]))
    return lane


class TestParents:
    def test_a_turn_without_parent_starts_afresh_also_on_a_used_lane(self) -> None:
        command = start(lane_at("resp_1"), create())
        assert (command.parent, command.hydrate) == (None, None)

    def test_the_latest_response_is_gone_on_from_in_memory(self) -> None:
        lane = lane_at("resp_1")
        command = start(lane, create("resp_1"))
        assert (command.parent, command.hydrate) == (lane.latest, None)

    @pytest.mark.parametrize("parent", ["resp_0", "resp_elsewhere", ""])
    def test_any_other_id_is_looked_up_in_the_store(self, parent: str) -> None:
        command = start(lane_at("resp_1"), create(parent))
        assert (command.parent, command.hydrate) == (None, parent)

    def test_only_the_latest_response_is_kept(self) -> None:
        lane = lane_at("resp_1")
        old = lane.latest
        start(lane, create("resp_1"))
        new = complete(lane, "resp_2")
        assert (lane.latest, lane.dropped) == (new, [old])

    def test_a_turn_that_took_its_parent_has_nothing_left_to_drop(self) -> None:
        lane = lane_at("resp_1")
        start(lane, create("resp_1"))
        lane.take()
        assert lane.latest is None
        complete(lane, "resp_2")
        assert lane.dropped == []


class TestEviction:
    """protocol.md section 5.2: what a failed continuation drops, and what it leaves."""

    def test_a_refused_continuation_drops_its_parent(self) -> None:
        lane = lane_at("resp_1")
        parent = lane.latest
        start(lane, create("resp_1"))
        lane.refuse(NoToolCall("c1"))
        assert (lane.latest, lane.dropped, lane.state) == (None, [parent], LaneState.IDLE)

    def test_a_continuation_that_never_could_start_drops_its_parent_when_its_turn_comes(self) -> None:
        lane = lane_at("resp_1")
        parent = lane.latest
        command = lane.begin(faulty("resp_1"))
        assert isinstance(command, Reject)
        assert command.error.param == "input"
        assert (lane.latest, lane.dropped, lane.state) == (None, [parent], LaneState.IDLE)

    def test_a_failed_continuation_drops_its_parent(self) -> None:
        lane = lane_at("resp_1")
        start(lane, create("resp_1"))
        fail(lane)
        assert lane.latest is None

    @pytest.mark.parametrize("parent", [None, "resp_elsewhere"])
    def test_what_did_not_go_on_from_it_leaves_the_latest_response(self, parent: str | None) -> None:
        lane = lane_at("resp_1")
        kept = lane.latest
        start(lane, create(parent))
        fail(lane)
        start(lane, create(parent))
        lane.refuse(NoToolCall("c1"))
        lane.begin(faulty(parent))
        assert (lane.latest, lane.dropped) == (kept, [])

    def test_an_eviction_forgets_only_the_parent_of_the_turn_that_failed(self) -> None:
        lane = lane_at("resp_1")
        start(lane, create("resp_1"))
        complete(lane, "resp_2")
        start(lane, create())
        fail(lane)
        assert lane.latest is not None
        assert lane.latest.response_id == "resp_2"


def test_a_create_without_request_or_reason_is_refused_too() -> None:
    command = Lane(Mode.SHIPPED).begin(Create(request=None))
    assert isinstance(command, Reject)
    assert command.error.status == 500


def test_the_tools_of_the_last_started_turn_are_kept() -> None:
    lane = Lane(Mode.SHIPPED)
    event = create(tools=[{"type": "function", "name": "look"}])
    start(lane, event)
    assert event.request is not None
    assert lane.tools is event.request.tools
    complete(lane, "resp_1")
    start(lane, create())
    assert lane.tools is NO_TOOLS


class TestWayOut:
    def test_numbers_begin_at_zero_for_each_response_and_rise_by_one(self) -> None:
        lane = Lane(Mode.SHIPPED)
        for _ in range(2):
            start(lane, create())
            events = [ResponseCreated(response=response()), ResponseInProgress(response=response())]
            frames = sent(lane, [*events, ResponseCompleted(response=response())])
            assert [frame["sequence_number"] for frame in frames] == [0, 1, 2]

    def test_numbers_go_on_after_a_failure_and_a_refusal_of_other_turns(self) -> None:
        lane = Lane(Mode.SHIPPED)
        start(lane, create())
        lane.send_event(ResponseCreated(response=response()))
        fail(lane)
        start(lane, create())
        lane.refuse(NoToolCall("c1"))
        start(lane, create())
        assert sent(lane, [ResponseCreated(response=response())])[0]["sequence_number"] == 0

    def test_one_run_of_numbers_spans_a_whole_rollout(self) -> None:
        lane = suspended("c1")
        lane.begin(append(output("c1")))
        assert sent(lane, [ResponseCompleted(response=response())])[0]["sequence_number"] == 1

    def test_the_default_lane_names_no_stream(self) -> None:
        lane = Lane(Mode.SHIPPED)
        start(lane, create())
        assert "stream_id" not in sent(lane, [ResponseCreated(response=response())])[0]
        assert "stream_id" not in json.loads(lane.error_frame(NoToolCall("c1")))

    def test_everything_of_a_named_lane_carries_its_name(self) -> None:
        lane = Lane(Mode.SHIPPED, "plan")
        start(lane, create())
        frames = sent(lane, [ResponseCreated(response=response()), ResponseCompleted(response=response())])
        start(lane, create())
        frames += [json.loads(lane.refuse(NoToolCall("c1"))), json.loads(lane.error_frame(NoToolCall("c1")))]
        assert [frame["stream_id"] for frame in frames] == ["plan"] * 4

    def test_a_terminal_ends_the_turn_once(self) -> None:
        lane = Lane(Mode.SHIPPED)
        start(lane, create())
        lane.send_event(ResponseCompleted(response=response()))
        assert lane.state is LaneState.IDLE
        with pytest.raises(KeyError):
            lane.send_event(ResponseFailed(response=response()))

    def test_a_second_turn_never_begins_inside_the_first(self) -> None:
        lane = Lane(Mode.SHIPPED)
        start(lane, create())
        with pytest.raises(KeyError):
            lane.begin(create())

    def test_a_shipped_turn_cannot_pause(self) -> None:
        lane = Lane(Mode.SHIPPED)
        start(lane, create())
        with pytest.raises(KeyError):
            lane.send_event(ResponseDone(response=response(), required_input=[]))

    def test_a_terminal_during_a_pause_forgets_the_pause(self) -> None:
        lane = suspended("c1")
        lane.send_event(ResponseFailed(response=response()))
        assert (lane.state, lane.pause) == (LaneState.IDLE, None)


class TestAppends:
    def test_the_last_output_resumes_the_turn(self) -> None:
        lane = suspended("c1", "c2")
        waits = lane.begin(append(output("c2")))
        assert isinstance(waits, AwaitOutputs)
        assert (waits.missing, lane.state) == (["c1"], LaneState.SUSPENDED)
        resumes = lane.begin(append(output("c1"), user(), response_id="resp_1"))
        assert isinstance(resumes, ResumeTurn)
        assert [getattr(item, "call_id", "user") for item in resumes.items] == ["c1", "c2", "user"]
        assert (lane.state, lane.pause) == (LaneState.ACTIVE, None)

    def test_a_refused_one_leaves_the_pause_as_it_was(self) -> None:
        lane = suspended("c1")
        for event in (append(output("c9")), append(), append(output("c1"), response_id="resp_9")):
            command = lane.begin(event)
            assert isinstance(command, Reject)
            assert command.error.status == 400
        assert lane.state is LaneState.SUSPENDED
        assert isinstance(lane.begin(append(output("c1"))), ResumeTurn)

    def test_another_response_is_named(self) -> None:
        command = suspended("c1").begin(append(output("c1"), response_id="resp_9"))
        assert isinstance(command, Reject)
        assert (command.error.code, command.error.param) == ("response_not_suspended", "response_id")
        assert command.error.message == "Response 'resp_9' is not suspended on this lane."

    @pytest.mark.parametrize("mode", Mode)
    def test_there_must_be_something_suspended(self, mode: Mode) -> None:
        lane = Lane(mode)
        for _ in range(2):
            command = lane.begin(append(output("c1")))
            assert isinstance(command, Reject)
            assert (command.error.code, command.error.param) == ("response_not_suspended", None)
            assert command.error.message == "No response on this lane is suspended at a tool call."
            lane.state = LaneState.ACTIVE

    def test_a_second_append_finds_nothing_suspended(self) -> None:
        lane = suspended("c1")
        lane.begin(append(output("c1")))
        assert isinstance(lane.begin(append(output("c1"))), Reject)


class TestSuspendedBy:
    """Which creates try to go on from a suspended response in the shipped way."""

    @pytest.mark.parametrize(
        ("event", "named"),
        [
            (create("resp_1"), True),
            (create(input=[output("c1")]), True),
            (create("resp_9", input=[user(), output("c2")]), True),
            (faulty("resp_1"), True),
            (create(), False),
            (create("resp_9"), False),
            (create(input=[output("c9")]), False),
            (create(input=[{"type": "function_call", "call_id": "c1", "name": "n", "arguments": ""}]), False),
            (faulty(), False),
        ],
    )
    def test_by_parent_or_by_call(self, event: Create, named: bool) -> None:
        assert suspended("c1", "c2").suspended_by(event) == ("resp_1" if named else None)

    def test_nothing_is_suspended_between_and_inside_turns(self) -> None:
        lane = suspended("c1")
        lane.begin(append(output("c1")))
        assert lane.suspended_by(create("resp_1")) is None
        assert lane_at("resp_1").suspended_by(create("resp_1")) is None


class TestErrors:
    def test_a_refusal_is_one_nested_frame_with_its_status(self) -> None:
        lane = Lane(Mode.SHIPPED)
        start(lane, create())
        assert json.loads(lane.refuse(NoToolCall("c1"))) == {
            "type": "error",
            "status": 400,
            "error": {
                "type": "invalid_request_error",
                "code": "no_tool_call_found",
                "message": "No tool call found for function call output with call_id c1.",
                "param": "input",
            },
        }

    def test_retry_hints_stand_in_both_places_that_clients_read(self) -> None:
        frame = json.loads(encode(error_frame(QueueFull(64))))
        assert frame["headers"] == frame["error"]["headers"] == {"retry-after": "1"}
        assert frame["status"] == 429

    def test_without_hints_there_are_no_headers(self) -> None:
        assert set(json.loads(encode(error_detail(ServerError())))) == {"type", "code", "message", "param"}
