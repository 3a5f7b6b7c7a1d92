"""Rollouts that outlive what the server had kept of them: another connection, all items once, no tool twice."""

from __future__ import annotations

from contextlib import suppress

import pytest
import trio
import trio.testing

from respserver.client import Client, ConnectionLost
from respserver.client.road import DIAL_PAUSES
from respserver.errors import ApiError
from tests.support.client_servers import (
    ANSWER,
    NOT_FOUND,
    PATIENCE,
    Page,
    Script,
    call,
    collect,
    completed,
    created,
    delta,
    done,
    listening,
    paging,
    serving,
    sse,
)
from tests.support.losses import OUTPUT, Series, Weather, drive, failed, refusal, short, whole

LIMIT = "websocket_connection_limit_reached"
CALL = call("call_1")
END = completed(ANSWER, id="resp_2")
PAUSES = pytest.mark.parametrize("pause", [completed(CALL), done(CALL)], ids=["shipped", "prototype"])


@PAUSES
async def test_a_socket_that_is_closed_between_two_steps_is_replaced_and_all_items_are_sent_once(pause):
    second, last = call("call_2"), completed(ANSWER, id="resp_3")
    series = Series(Script([created(), pause], close=(1001, "bye")), Script([completed(second, id="resp_2")], [last]))
    weather = Weather()
    async with serving(series.serve) as url:
        rollout, events = await drive(url, weather)
    assert events == [created(), pause, completed(second, id="resp_2"), last]
    (first,), (again, chained) = series.creates
    assert first == {"input": "Go."}
    assert {**again, "input": short(again["input"])} == {"input": whole()}
    assert chained == {"previous_response_id": "resp_2", "input": [{**OUTPUT, "call_id": "call_2"}]}
    assert weather.runs == 2
    assert rollout.renewals == 1
    assert len(rollout.history) == 6


@PAUSES
@pytest.mark.parametrize("code", ["previous_response_not_found", LIMIT, "server_shutting_down"])
async def test_a_step_that_is_refused_for_a_loss_is_asked_for_anew_on_another_socket(pause, code):
    series = Series(Script([created(), pause], [refusal(code)]), Script([END]))
    weather = Weather()
    async with serving(series.serve) as url:
        _, events = await drive(url, weather)
    assert events == [created(), pause, END]
    assert short(series.creates[1][0]["input"]) == whole()
    assert "previous_response_id" not in series.creates[1][0]
    assert weather.runs == 1


async def test_a_rollout_that_failed_while_it_stood_suspended_because_its_socket_ends_begins_again():
    series = Series(Script([created(), done(CALL), failed("server_shutting_down")]), Script([END]))
    weather = Weather()
    async with serving(series.serve) as url:
        _, events = await drive(url, weather)
    assert events == [created(), done(CALL), END]
    assert weather.runs == 1


async def test_a_rollout_that_failed_for_another_reason_while_it_stood_suspended_has_failed():
    series = Series(Script([created(), done(CALL), failed("tool_timeout")]))
    async with serving(series.serve) as url:
        _, events = await drive(url, Weather())
    assert events == [created(), done(CALL), failed("tool_timeout")]


async def test_a_limit_that_is_told_in_the_middle_of_a_turn_lets_it_end_and_the_next_one_goes_elsewhere():
    limit = refusal(LIMIT)
    first = Script([created(), limit, delta("one moment"), completed(CALL)], close=(1001, LIMIT))
    series = Series(first, Script([END]))
    async with serving(series.serve) as url:
        _, events = await drive(url, Weather())
    assert events == [created(), delta("one moment"), completed(CALL), END]


@pytest.mark.parametrize("second", [[], [NOT_FOUND]], ids=["lost again", "refused again"])
async def test_all_items_are_sent_once_and_not_again_for_the_same_step(second):
    series = Series(Script([completed(CALL)], [NOT_FOUND]), Script(second, close=(1001, "")), Script([END]))
    weather = Weather()
    async with serving(series.serve) as url:
        with pytest.raises((ConnectionLost, ApiError)):
            await drive(url, weather)
    assert series.connections == 2
    assert weather.runs == 1


@pytest.mark.parametrize("status", [502, 503, 401])
async def test_dialling_is_patient_with_a_server_that_is_busy_and_not_with_one_that_says_no(autojump_clock, status):
    series = Series(Script([completed(CALL)], close=(1001, "")), status=status)
    async with serving(series.serve) as url, Client(url) as client:
        rollout = client.rollout("Go.", model="sim", tools={"weather": Weather()})
        with pytest.raises(ApiError) as caught:
            await collect(rollout)
    assert caught.value.status == status
    assert series.connections == 1 + (1 if status == 401 else len(DIAL_PAUSES))
    assert rollout.outputs == [OUTPUT]
    assert short(rollout.history) == whole()
    assert await collect(rollout) == []


@PAUSES
async def test_without_reconnects_a_loss_is_an_error_and_what_the_tools_said_is_kept(pause):
    series = Series(Script([pause], close=(1001, "")), Script([END]))
    async with serving(series.serve) as url, Client(url) as client:
        rollout = client.rollout("Go.", model="sim", tools={"weather": Weather()}, reconnects=False)
        with pytest.raises(ConnectionLost):
            await collect(rollout)
    assert rollout.outputs == [OUTPUT]
    assert series.connections == 1


@PAUSES
async def test_without_reconnects_no_tool_starts_for_a_connection_that_is_known_to_be_lost(pause):
    series = Series(Script([pause], close=(1001, "")))
    weather = Weather()
    async with serving(series.serve) as url, Client(url) as client:
        rollout = client.rollout("Go.", model="sim", tools={"weather": weather}, reconnects=False)
        assert await anext(rollout) == pause
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(ConnectionLost, match="1001"):
            await anext(rollout)
    assert weather.runs == 0


@pytest.mark.parametrize("while_", ["waiting", "dialling", "working"])
async def test_a_rollout_that_another_task_closes_does_not_reconnect(while_, mock_clock):
    """Not while it waits for the first event of a step, nor while it dials for another socket, nor from its tools."""
    lost = Script([completed(CALL)], **({"close": (1001, "")} if while_ == "dialling" else {}))
    series = Series(lost if while_ == "dialling" else Script([completed(CALL)], []))
    closed = trio.Event()

    async def work():
        if while_ == "working":
            await closed.wait()

    async def iterate():
        with suppress(ConnectionLost):
            assert await collect(rollout) == [completed(CALL)]

    async with serving(series.serve) as url, Client(url) as client, trio.open_nursery() as nursery:
        rollout = client.rollout("Go.", model="sim", tools={"weather": Weather(work)})
        nursery.start_soon(iterate)
        await trio.testing.wait_all_tasks_blocked()
        before = series.connections
        nursery.start_soon(rollout.aclose)
        await trio.testing.wait_all_tasks_blocked()
        closed.set()
        await trio.testing.wait_all_tasks_blocked()
        assert not client._roads
    assert before == (2 if while_ == "dialling" else 1)
    assert rollout.renewals == 0


@pytest.mark.parametrize("step", [1, 2])
async def test_a_connection_that_is_lost_in_the_middle_of_a_turn_is_an_error(step):
    """What the turn has done is not known, and its events have been seen."""
    answers = [[completed(CALL)], [created("resp_2")]] if step == 2 else [[created()]]
    series = Series(Script(*answers, close=(1011, "")), Script([END]))
    async with serving(series.serve) as url:
        with pytest.raises(ConnectionLost, match="1011"):
            await drive(url, Weather())
    assert series.connections == 1


async def test_a_connection_that_is_lost_in_the_middle_of_the_turn_after_a_loss_is_an_error():
    first, second = Script([completed(CALL)], close=(1001, "")), Script([created("resp_2")], close=(1011, ""))
    series = Series(first, second, Script([END]))
    async with serving(series.serve) as url:
        with pytest.raises(ConnectionLost, match="1011"):
            await drive(url, Weather())
    assert series.connections == 2


async def test_the_history_has_the_items_of_every_response_also_of_a_server_that_gives_ids_twice():
    series = Series(Script([completed(ANSWER, CALL)], [completed(ANSWER, id="resp_2")]))
    async with serving(series.serve) as url:
        rollout, _ = await drive(url, Weather())
    assert [item.get("id") for item in rollout.history] == [None, "msg_1", "fc_call_1", None, "msg_1"]


async def test_a_call_is_answered_though_an_earlier_response_had_one_of_the_same_id():
    weather = Weather()
    series = Series(Script([completed(CALL)], [completed(CALL, id="resp_2")], [completed(ANSWER, id="resp_3")]))
    async with serving(series.serve) as url:
        _, events = await drive(url, weather)
    assert events[-1] == completed(ANSWER, id="resp_3")
    assert weather.runs == 2


async def test_the_first_request_is_not_sent_twice():
    series = Series(Script([NOT_FOUND]), Script([END]))
    async with serving(series.serve) as url:
        with pytest.raises(ApiError, match="not found"):
            await drive(url, Weather(), previous_response_id="resp_0")
    assert series.connections == 1


async def test_a_parent_that_the_caller_has_named_stays_the_parent_of_all_that_is_sent_again():
    series = Series(Script([completed(CALL)], close=(1001, "")), Script([END]))
    async with serving(series.serve) as url:
        await drive(url, Weather(), previous_response_id="resp_0")
    assert series.creates[1][0]["previous_response_id"] == "resp_0"
    assert short(series.creates[1][0]["input"]) == whole()


# ------------------------------------------------------------------------------------------------------ over HTTP


class Answers:
    """An HTTP server that gives the n-th request the n-th answer: events, a status with an error, or the end."""

    def __init__(self, *answers):
        self.pages = [self._page(answer) for answer in answers]
        self.served = 0

    async def serve(self, stream):
        for page in self.pages[self.served :]:
            if page is None:
                self.served += 1
                break
            page.keeps = False
            self.served += 1
            await page.serve(stream)
            return
        await stream.aclose()

    @property
    def creates(self):
        same = ("model", "tools", "stream")
        bodies = [request[1] for page in self.pages if page for request in page.requests]
        return [{key: value for key, value in body.items() if key not in same} for body in bodies]

    def _page(self, answer):
        match answer:
            case None:
                return None
            case [*events]:
                return Page(200, sse(*events) + b"data: [DONE]\n\n")
            case status:
                return Page(status, b'{"error":{"code":"previous_response_not_found","message":"gone"}}')


@pytest.mark.parametrize("loss", [404, None], ids=["not found", "broken"])
async def test_over_http_all_items_are_sent_when_the_chain_is_gone(autojump_clock, loss):
    answers = Answers([created(), completed(CALL)], loss, [END])
    weather = Weather()
    async with listening(answers.serve) as url:
        _, events = await drive(url, weather, transport="http")
    assert events == [created(), completed(CALL), END]
    assert short(answers.creates[-1]["input"]) == whole()
    assert "previous_response_id" not in answers.creates[-1]
    assert weather.runs == 1


@pytest.mark.parametrize("options", [{"store": False}, {"chained": False}], ids=["unstored", "unchained"])
async def test_over_http_all_items_are_sent_each_time_where_there_is_nothing_to_go_on_from(options):
    answers = Answers([completed(CALL)], [END])
    async with listening(answers.serve) as url:
        rollout, _ = await drive(url, Weather(), transport="http", **options)
    assert [short(body["input"]) for body in answers.creates[1:]] == [whole()]
    assert "previous_response_id" not in answers.creates[1]
    assert rollout.renewals == 0


@pytest.mark.parametrize("until", ["the request", "the first event"])
async def test_a_rollout_over_http_that_waits_ends_with_its_clients_block(until):
    async def iterate(rollout):
        with pytest.raises(ConnectionLost, match="closed"):
            await collect(rollout)

    async def silent(stream):
        async with stream:
            if until == "the first event":
                await stream.send_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            while await stream.receive_some():
                pass

    with trio.fail_after(PATIENCE):
        async with listening(silent) as url, trio.open_nursery() as nursery, Client(url) as client:
            nursery.start_soon(iterate, client.rollout("Go.", model="sim", tools={}, transport="http"))
            await trio.testing.wait_all_tasks_blocked(0.02)


async def test_the_error_that_http_has_before_a_failed_response_is_not_an_event_of_the_rollout():
    page = Page(200, sse(created(), {"type": "error", "code": "x", "message": "m"}, failed("x")) + b"data: [DONE]\n\n")
    async with paging(page) as client:
        events = await collect(client.rollout("Go.", model="sim", tools={}, transport="http"))
    assert events == [created(), failed("x")]


@pytest.mark.parametrize(
    ("tail", "ending"),
    [(b"", b""), (b"data: [DONE]\n\n", b"babble\r\n"), (b"data: babble\n\n", b"0\r\n\r\n")],
    ids=["no end", "a broken one", "no event"],
)
async def test_what_comes_behind_the_end_of_a_turn_over_http_loses_nothing(tail, ending):
    page = Page(200, sse(completed(CALL)) + tail, ending=ending, keeps=False)
    answers = Answers([END])
    answers.pages.insert(0, page)
    async with listening(answers.serve) as url:
        rollout, events = await drive(url, Weather(), transport="http")
    assert events == [completed(CALL), END]
    assert rollout.renewals == 0


@pytest.mark.parametrize(
    "tail", [[{"type": "error", "code": "x", "message": "It broke."}], []], ids=["error", "nothing"]
)
async def test_a_stream_that_ends_without_its_response_is_an_error(tail):
    async with paging(Page(200, sse(created(), *tail))) as client:
        with pytest.raises((ApiError, ConnectionLost), match=r"It broke\.|ended before"):
            await collect(client.rollout("Go.", model="sim", tools={}, transport="http"))
