"""The lanes of a connection: names, bounds, what an error echoes, and whose parent a create goes on from."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respserver.config import Mode
from respserver.errors import NoToolCall, ServerBusy, ShuttingDown
from respserver.protocol.commands import Create, Reject, StartTurn
from respserver.protocol.connection import Connection, Delivery
from respserver.protocol.lane import Lane
from respserver.protocol.states import LaneState
from respserver.schema.events import ResponseCompleted, ResponseDone
from tests.support.pure import append, create, latest, output, response, sent


def connection(mode: Mode = Mode.SHIPPED, **options: Any) -> Connection:
    return Connection(mode, "websocket", **options)


def deliver(conn: Connection, **fields: Any) -> Delivery:
    answer = conn.receive_message(create(**fields), 0.0)
    assert isinstance(answer, Delivery), answer
    return answer


def reject(conn: Connection, text: str) -> Reject:
    answer = conn.receive_message(text, 0.0)
    assert isinstance(answer, Reject), answer
    return answer


def start(conn: Connection, **fields: Any) -> tuple[Lane, StartTurn]:
    delivery = deliver(conn, **fields)
    command = delivery.lane.begin(delivery.event)
    assert isinstance(command, StartTurn)
    return delivery.lane, command


def run(conn: Connection, response_id: str, **fields: Any) -> Lane:
    """A whole turn that ends well."""
    delivery = deliver(conn, **fields)
    assert isinstance(delivery.lane.begin(delivery.event), StartTurn)
    finish(conn, delivery, response_id)
    return delivery.lane


def finish(conn: Connection, delivery: Delivery, response_id: str) -> None:
    delivery.lane.publish(latest(response_id))
    delivery.lane.send_event(ResponseCompleted(response=response(response_id)))
    assert isinstance(delivery.event, Create)
    conn.finish_create(delivery.lane, delivery.event)


class TestNames:
    @pytest.mark.parametrize("name", ["a", "plan-1", "A_b.C-9", "x" * 256, ".", "0"])
    def test_a_name_is_a_lane_and_stays_one(self, name: str) -> None:
        conn = connection()
        lane = deliver(conn, stream_id=name).lane
        assert lane.name == name
        assert deliver(conn, stream_id=name).lane is lane
        assert lane is not conn.lane

    @pytest.mark.parametrize("name", ["", "a b", "x" * 257, "ä", "a\n", "a/b", 5, {}, [], True])
    def test_what_can_be_no_name_is_refused_and_never_echoed(self, name: Any) -> None:
        conn = connection()
        answer = reject(conn, create(stream_id=name))
        assert (answer.error.code, answer.error.param, answer.stream_id) == ("invalid_stream_id", "stream_id", None)
        assert answer.error.message == (
            "The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain "
            "letters, numbers, underscores, hyphens, and periods."
        )
        assert (conn.idle, list(conn.named)) == (True, [])

    def test_null_means_the_default_lane(self) -> None:
        conn = connection()
        assert deliver(conn, stream_id=None).lane is conn.lane

    def test_the_33rd_name_is_refused_and_echoed_and_the_others_go_on(self) -> None:
        conn = connection()
        for number in range(32):
            deliver(conn, stream_id=f"lane-{number}")
        answer = reject(conn, create(stream_id="lane-32"))
        assert (answer.error.code, answer.error.param) == ("websocket_stream_limit_reached", "stream_id")
        assert answer.stream_id == "lane-32"
        assert answer.error.message == (
            "This WebSocket connection has reached its maximum number of distinct stream IDs (32). "
            "Reuse an existing stream_id or open a new WebSocket connection."
        )
        deliver(conn, stream_id="lane-31")
        deliver(conn)

    def test_a_lane_never_frees_its_name(self) -> None:
        conn = connection(max_lanes=1)
        run(conn, "resp_1", stream_id="one")
        assert reject(conn, create(stream_id="two")).error.code == "websocket_stream_limit_reached"
        run(conn, "resp_2", stream_id="one")

    def test_a_faulty_create_keeps_its_place_in_its_lane(self) -> None:
        conn = connection()
        delivery = deliver(conn, stream_id="plan", input=42)
        assert isinstance(delivery.event, Create)
        assert delivery.event.error is not None
        assert json.loads(delivery.lane.error_frame(delivery.event.error))["stream_id"] == "plan"


class TestEcho:
    def test_a_create_that_cannot_wait_is_refused_on_its_lane(self) -> None:
        conn = connection(max_waiting=0)
        deliver(conn, stream_id="plan")
        answer = reject(conn, create(stream_id="plan"))
        assert (answer.error.code, answer.stream_id) == ("queue_full", "plan")

    def test_a_create_that_comes_too_late_is_refused_on_its_lane(self) -> None:
        conn = connection(max_age=3600.0)
        conn.closing = ShuttingDown()
        assert reject(conn, create(stream_id="plan")).stream_id == "plan"
        answer = conn.receive_message(create(stream_id="risk"), 3601.0)
        assert isinstance(answer, Reject)
        assert (answer.error.code, answer.stream_id) == ("websocket_connection_limit_reached", "risk")
        assert reject(conn, create()).stream_id is None

    def test_an_append_is_refused_on_its_lane_and_names_none(self) -> None:
        conn = connection(Mode.PROTOTYPE)
        answer = reject(conn, append(output("c1"), stream_id="plan"))
        assert (answer.error.code, answer.stream_id) == ("response_not_suspended", "plan")
        assert not conn.named
        answer = reject(conn, append(output("c1"), stream_id="a b"))
        assert (answer.error.code, answer.stream_id) == ("invalid_stream_id", None)

    def test_an_append_reaches_the_lane_that_it_names(self) -> None:
        conn = connection(Mode.PROTOTYPE)
        lane, _ = start(conn, stream_id="plan")
        answer = conn.receive_message(append(output("c1"), stream_id="plan"), 0.0)
        assert isinstance(answer, Delivery)
        assert answer.lane is lane


class TestBounds:
    def test_what_waits_is_counted_over_all_lanes(self) -> None:
        conn = connection(max_waiting=2)
        for name in ("one", "two", "two", "one"):
            deliver(conn, stream_id=name)
        assert conn.waiting == 2
        assert reject(conn, create(stream_id="one")).error.code == "queue_full"
        deliver(conn, stream_id="three")  # runs at once
        assert conn.waiting == 2

    def test_lanes_beyond_those_that_may_run_at_once_wait(self) -> None:
        conn = connection(max_waiting=2, max_active=2)
        taken = [deliver(conn, stream_id=name) for name in ("one", "two", "three", "four")]
        assert conn.waiting == 2
        assert reject(conn, create(stream_id="five")).error.code == "queue_full"
        assert isinstance(taken[0].lane.begin(taken[0].event), StartTurn)
        finish(conn, taken[0], "resp_1")
        deliver(conn, stream_id="five")

    def test_a_suspended_rollout_neither_runs_nor_waits(self) -> None:
        conn = connection(Mode.PROTOTYPE, max_waiting=1, max_active=1)
        lane, _ = start(conn, stream_id="one")
        sent(lane, [ResponseDone(response=response(), required_input=[])])
        assert lane.state is LaneState.SUSPENDED
        deliver(conn, stream_id="two")
        assert conn.waiting == 0
        deliver(conn, stream_id="three")
        assert conn.waiting == 1
        assert reject(conn, create(stream_id="four")).error.code == "queue_full"

    def test_the_size_of_frames_is_counted_over_all_lanes(self) -> None:
        conn = connection(max_waiting_size=2 * len(create(stream_id="one", input="x" * 500)))
        deliver(conn, stream_id="one", input="x" * 500)
        deliver(conn, stream_id="two", input="x" * 500)
        assert reject(conn, create(stream_id="two")).error.code == "queue_full"

    def test_a_connection_is_idle_when_no_lane_has_a_turn(self) -> None:
        conn = connection()
        one, two = deliver(conn, stream_id="one"), deliver(conn, stream_id="two")
        for delivery in (one, two):
            assert not conn.idle
            delivery.lane.begin(delivery.event)
            finish(conn, delivery, "resp_1")
        assert conn.idle


class TestParents:
    def test_a_lane_goes_on_from_its_own_latest(self) -> None:
        conn = connection()
        run(conn, "resp_1", stream_id="one")
        lane, command = start(conn, stream_id="one", previous_response_id="resp_1")
        assert (command.parent, command.is_fork) == (lane.latest, False)

    @pytest.mark.parametrize(("source", "fork"), [("one", "two"), (None, "two"), ("one", None)])
    def test_another_lane_goes_on_from_a_copy(self, source: str | None, fork: str | None) -> None:
        conn = connection()
        holder = run(conn, "resp_1", stream_id=source)
        _, command = start(conn, stream_id=fork, previous_response_id="resp_1")
        assert (command.parent, command.is_fork) == (holder.latest, True)

    def test_a_parent_is_bound_when_the_turn_starts(self) -> None:
        conn = connection()
        run(conn, "resp_1", stream_id="one")
        waiting = deliver(conn, stream_id="two", previous_response_id="resp_1")
        run(conn, "resp_2", stream_id="one", previous_response_id="resp_1")
        command = waiting.lane.begin(waiting.event)
        assert isinstance(command, StartTurn)
        assert (command.parent, command.hydrate) == (None, "resp_1")

    def test_a_lane_that_is_used_again_without_a_parent_begins_anew(self) -> None:
        conn = connection()
        run(conn, "resp_1", stream_id="one")
        _, command = start(conn, stream_id="one")
        assert (command.parent, command.hydrate) == (None, None)

    def test_a_failed_fork_keeps_the_parent_and_a_failed_continuation_drops_it(self) -> None:
        conn = connection()
        source = run(conn, "resp_1", stream_id="one")
        fork, _ = start(conn, stream_id="two", previous_response_id="resp_1")
        fork.refuse(NoToolCall("c1"))
        assert source.holds("resp_1")
        start(conn, stream_id="one", previous_response_id="resp_1")
        source.refuse(NoToolCall("c1"))
        assert not source.holds("resp_1")

    def test_a_failed_fork_keeps_what_its_own_lane_had(self) -> None:
        conn = connection()
        run(conn, "resp_1", stream_id="one")
        fork = run(conn, "resp_2", stream_id="two")
        start(conn, stream_id="two", previous_response_id="resp_1")
        fork.refuse(NoToolCall("c1"))
        assert fork.holds("resp_2")

    def test_a_create_that_was_refused_before_it_began_has_dropped_nothing(self) -> None:
        conn = connection()
        lane = run(conn, "resp_1", stream_id="one")
        deliver(conn, stream_id="one", previous_response_id="resp_1")
        lane.refuse(ServerBusy(1))
        assert (lane.holds("resp_1"), lane.state) == (True, LaneState.IDLE)

    def test_lanes_begin_with_the_tools_that_the_connection_had_last(self) -> None:
        conn = connection()
        tools = [{"type": "function", "name": "look", "parameters": {}}]
        one = deliver(conn, tools=tools).event
        two = deliver(conn, stream_id="two", tools=tools).event
        assert isinstance(one, Create)
        assert isinstance(two, Create)
        assert one.request is not None
        assert two.request is not None
        assert one.request.tools is two.request.tools  # the same bytes are not read twice
