"""A connection: one answer to each message, the queue's bound, and what ends it."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.config import Mode
from respserver.errors import ApiError, ShuttingDown
from respserver.protocol.chain import Pause
from respserver.protocol.commands import Append, Create, Ignore, Reject, StartTurn
from respserver.protocol.connection import Connection, Delivery
from respserver.schema.events import ResponseDone
from tests.support.pure import append, create, open_calls, output, response


def connection(mode: Mode = Mode.SHIPPED, **options: Any) -> Connection:
    return Connection(mode, "websocket", **options)


def delivered(answer: Any) -> Create:
    assert isinstance(answer, Delivery)
    assert isinstance(answer.event, Create)
    return answer.event


def refused(answer: Any) -> ApiError:
    assert isinstance(answer, Reject)
    return answer.error


class TestCreates:
    def test_one_is_delivered_to_the_default_lane(self) -> None:
        conn = connection()
        assert conn.idle
        answer = conn.receive_message(create(previous_response_id="resp_1"), 0.0)
        event = delivered(answer)
        assert isinstance(answer, Delivery)
        assert answer.lane is conn.lane
        assert (event.error, event.previous_response_id) == (None, "resp_1")
        assert (conn.idle, conn.waiting) == (False, 0)

    def test_bytes_are_read_like_text(self) -> None:
        assert delivered(connection().receive_message(create().encode(), 0.0)).request is not None

    @pytest.mark.parametrize("parent", ["resp_1", None, 5])
    def test_a_faulty_one_waits_its_turn_with_its_error_and_parent(self, parent: Any) -> None:
        event = delivered(connection().receive_message(create(input=42, previous_response_id=parent), 0.0))
        assert event.request is None
        assert event.error is not None
        assert event.error.param == ("previous_response_id" if parent == 5 else "input")
        assert event.previous_response_id == (parent if isinstance(parent, str) else None)

    def test_the_connections_own_settings_apply(self) -> None:
        event = delivered(connection(strict=True).receive_message(create(colour=1), 0.0))
        assert event.error is not None
        assert event.error.code == "unknown_parameter"
        event = delivered(connection(default_model="house").receive_message(create(model=...), 0.0))
        assert event.request is not None
        assert event.request.params.model == "house"

    def test_tools_resent_byte_for_byte_are_the_last_turns_set(self) -> None:
        conn = connection()
        frame = create(tools=[{"type": "function", "name": "look"}])
        first = delivered(conn.receive_message(frame, 0.0))
        conn.lane.begin(first)
        second = delivered(conn.receive_message(frame, 0.0))
        assert first.request is not None
        assert second.request is not None
        assert second.request.tools is first.request.tools

    def test_a_repeated_key_counts_with_its_last_value(self) -> None:
        event = delivered(connection().receive_message('{"type":"x","model":1,' + create()[1:], 0.0))
        assert event.request is not None
        assert event.request.params.model == "sim"


class TestQueue:
    def test_one_runs_and_so_many_wait(self) -> None:
        conn = connection(max_waiting=2)
        for waiting in (0, 1, 2):
            delivered(conn.receive_message(create(), 0.0))
            assert conn.waiting == waiting
        error = refused(conn.receive_message(create(), 0.0))
        assert (error.status, error.code, error.headers) == (429, "queue_full", {"retry-after": "1"})
        assert conn.waiting == 2

    def test_a_turn_that_ends_makes_room(self) -> None:
        conn = connection(max_waiting=1)
        for _ in range(2):
            taken = delivered(conn.receive_message(create(), 0.0))
        conn.finish_create(conn.lane, taken)
        delivered(conn.receive_message(create(), 0.0))
        refused(conn.receive_message(create(), 0.0))

    def test_faulty_ones_take_a_place_too(self) -> None:
        conn = connection(max_waiting=0)
        delivered(conn.receive_message(create(input=42), 0.0))
        assert refused(conn.receive_message(create(), 0.0)).code == "queue_full"

    def test_bytes_are_counted_not_characters_and_the_refusal_says_so(self) -> None:
        frame = create(input="e" * 500).replace("e" * 500, "é" * 500)
        most = 2 * len(frame.encode()) - 1
        conn = connection(max_waiting_size=most)
        assert 2 * len(frame) < most
        delivered(conn.receive_message(frame, 0.0))
        error = refused(conn.receive_message(frame, 0.0))
        bound = f"The requests of this connection that run or wait may hold {most} bytes together."
        assert (error.code, error.message) == ("queue_full", f"{bound} Try again when one has ended.")

    def test_by_default_64_wait(self) -> None:
        conn = connection()
        for _ in range(65):
            delivered(conn.receive_message(create(), 0.0))
        assert refused(conn.receive_message(create(), 0.0)).code == "queue_full"


class TestWhoTimesIt:
    def test_is_told_between_reading_a_message_and_understanding_it(self) -> None:
        told: list[int] = []
        conn = connection()
        answer = conn.receive_message(create(), 0.0, lambda: told.append(conn.lane.pending))
        assert (told, conn.lane.pending) == ([0], 1)
        delivered(answer)

    def test_is_not_told_of_what_cannot_be_read(self) -> None:
        told: list[None] = []
        refused(connection().receive_message("{", 0.0, lambda: told.append(None)))
        assert not told


class TestOtherMessages:
    @pytest.mark.parametrize(
        "text", ["", "{", "[1]", "5", "null", '"x"', "not JSON", b"\xff", "[" * 10_000, "\ud800", '{"type":NaN}']
    )
    def test_what_is_no_json_object_gets_an_error(self, text: str | bytes) -> None:
        error = refused(connection().receive_message(text, 0.0))
        assert (error.status, error.code, error.param) == (400, "invalid_json", None)

    @pytest.mark.parametrize("text", ["{}", '{"type":5}', '{"type":null}', '{"type":{}}'])
    def test_a_message_without_type_gets_an_error_that_says_so(self, text: str) -> None:
        error = refused(connection().receive_message(text, 0.0))
        assert (error.status, error.code, error.param) == (400, "unknown_event_type", "type")
        assert error.message == "Missing or invalid 'type'."

    @pytest.mark.parametrize(
        ("name", "hint"),
        [
            ("zzz.unknown", ""),
            ("", ""),
            (
                "response.append",
                " This server runs in shipped mode: send response.create with previous_response_id.",
            ),
            ("response.cancel", " Close the connection to cancel."),
            ("response.creat", " Did you mean 'response.create'?"),
            ("create", " Did you mean 'response.create'?"),
            ("response.steering", " Did you mean 'response.steer'?"),
            ("response.apend", ""),
            ("response.inject", ""),
            ("create" * 20, ""),
        ],
    )
    def test_an_unknown_type_is_named_with_a_hint_where_there_is_one(self, name: str, hint: str) -> None:
        error = refused(connection().receive_message(f'{{"type":"{name}"}}', 0.0))
        assert (error.code, error.param) == ("unknown_event_type", "type")
        assert error.message == f"Unknown event type: '{name}'.{hint}"

    def test_the_hint_names_what_the_mode_takes(self) -> None:
        error = refused(connection(Mode.PROTOTYPE).receive_message('{"type":"response.apend"}', 0.0))
        assert error.message.endswith(" Did you mean 'response.append'?")

    @pytest.mark.parametrize("mode", Mode)
    def test_what_some_clients_report_needs_no_answer(self, mode: Mode) -> None:
        answer = connection(mode).receive_message('{"type":"response.processed","response_id":"resp_1"}', 0.0)
        assert answer == Ignore(type="response.processed")

    def test_nothing_of_this_changes_the_running_turn(self) -> None:
        conn = connection()
        conn.lane.begin(delivered(conn.receive_message(create(), 0.0)))
        for text in ("{", "{}", append(output("c1")), '{"type":"zzz"}'):
            refused(conn.receive_message(text, 0.0))
        assert (conn.lane.pending, conn.waiting) == (1, 0)


class TestAppends:
    def test_prototype_mode_delivers_them_at_once(self) -> None:
        conn = connection(Mode.PROTOTYPE)
        answer = conn.receive_message(append(output("c1"), response_id="resp_1"), 0.0)
        assert isinstance(answer, Delivery)
        assert isinstance(answer.event, Append)
        assert (answer.event.request.response_id, len(answer.event.request.items)) == ("resp_1", 1)
        assert conn.idle

    def test_faulty_ones_are_refused_at_once(self) -> None:
        error = refused(connection(Mode.PROTOTYPE).receive_message('{"type":"response.append"}', 0.0))
        assert (error.code, error.param) == ("missing_required_parameter", "input")

    def test_the_strict_setting_holds_for_them_too(self) -> None:
        conn = connection(Mode.PROTOTYPE, strict=True)
        assert refused(conn.receive_message(append(output("c1"), colour=1), 0.0)).code == "unknown_parameter"


class TestSuspended:
    def suspended(self) -> Connection:
        conn = connection(Mode.PROTOTYPE, max_waiting=1)
        started = conn.lane.begin(delivered(conn.receive_message(create(), 0.0)))
        assert isinstance(started, StartTurn)
        conn.lane.pause = Pause(response_id="resp_1", open_calls=open_calls("c1"), emitted=[])
        conn.lane.send_event(ResponseDone(response=response(), required_input=[]))
        return conn

    @pytest.mark.parametrize(
        "fields",
        [{"previous_response_id": "resp_1"}, {"input": [output("c1")]}, {"previous_response_id": "resp_1", "input": 4}],
        ids=str,
    )
    def test_a_create_in_the_shipped_way_is_told_to_append(self, fields: Any) -> None:
        conn = self.suspended()
        error = refused(conn.receive_message(create(**fields), 0.0))
        assert (error.status, error.code) == (409, "response_suspended")
        assert "response.append" in error.message
        assert conn.waiting == 0

    def test_any_other_create_waits_behind_the_rollout(self) -> None:
        conn = self.suspended()
        delivered(conn.receive_message(create(), 0.0))
        assert conn.waiting == 1
        assert refused(conn.receive_message(create(), 0.0)).code == "queue_full"


class TestEnd:
    def test_at_its_greatest_age_a_connection_takes_no_more_creates(self) -> None:
        conn = connection(opened_at=100.0, max_age=3600.0)
        conn.finish_create(conn.lane, delivered(conn.receive_message(create(), 3699.9)))
        error = refused(conn.receive_message(create(), 3700.0))
        assert (error.status, error.code, error.param) == (400, "websocket_connection_limit_reached", None)
        assert error.message == (
            "Responses websocket connection limit reached (60 minutes). Create a new websocket connection to continue."
        )

    def test_without_a_limit_it_takes_them_for_ever(self) -> None:
        delivered(connection().receive_message(create(), 1e12))

    def test_a_closing_connection_says_why(self) -> None:
        conn = connection()
        conn.closing = ShuttingDown()
        assert refused(conn.receive_message(create(), 0.0)) is conn.closing
        assert conn.idle

    def test_a_busy_lane_says_so_behind_what_it_does(self) -> None:
        """Its frame would stand between the events of the running turn, and be taken for that one's end."""
        conn = connection(opened_at=0.0, max_age=1.0)
        delivered(conn.receive_message(create(), 0.0))
        conn.closing = ShuttingDown()
        assert isinstance(conn.receive_message(create(), 5.0), Delivery)
        assert refused(conn.receive_message(create(stream_id="plan"), 5.0)).code == "websocket_connection_limit_reached"

    def test_a_rollout_may_still_be_finished_while_the_connection_closes(self) -> None:
        conn = connection(Mode.PROTOTYPE, opened_at=0.0, max_age=1.0)
        conn.closing = ShuttingDown()
        assert isinstance(conn.receive_message(append(output("c1")), 5.0), Delivery)
