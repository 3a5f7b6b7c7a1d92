"""Stage times of turns that wait, by Trio's clock: for each other, for classifiers, readers, clients and the worker."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from respserver.config import Config, LatencyClassifierConfig, Limits, Mode
from respserver.engines.sim import Script, Sim, call, delay
from respserver.ledger.base import Timings, TurnRecord
from respserver.schema.codec import encode, read_object
from respserver.services import build_services
from respserver.transport.http import HttpTurns, SsePort, chunks
from respserver.turn.postinference import PostInference
from respserver.turn.services import Services
from respserver.turn.stopwatch import STAGES, Stopwatch
from tests.support.fake_socket import FakeSocket
from tests.support.ledger_kit import record
from tests.support.live import calls_of, output, tool
from tests.support.spy import Spy, SpySequence
from tests.support.talk import Talk

TOOLS = [tool("first")]
SPANS = set(STAGES) - {"post"}


def timed(engine: Spy, **fields: Any) -> Services:
    """Services whose turns are timed by Trio's clock, which a test jumps on."""
    parts = build_services(Config(**fields), engine=engine)
    parts.clock = trio.current_time
    return parts


async def records(talk: Talk) -> list[TurnRecord]:
    """Of the turns so far, once all is done behind them."""
    await trio.testing.wait_all_tasks_blocked()
    return talk.services.post.tally.latest


def seconds(record: TurnRecord) -> dict[str, float]:
    """What took time, without what came behind the turn. Trio's clock moves on for nothing but what waits."""
    fields: dict[str, float] = json.loads(encode(record.timings_ms))
    assert fields.pop("total", 0.0) == pytest.approx(sum(ms for name, ms in fields.items() if name in SPANS))
    return {name: ms / 1000 for name, ms in fields.items() if name != "post"}


async def test_a_create_that_waits_behind_another_is_in_the_queue(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    talk = Talk(nursery, timed(Spy(Script.of([delay(5), "Done."]))))
    talk.create(input="go")
    await talk.turn(input="me too")
    assert (await talk.socket.hear_step())[-1]["type"] == "response.completed"
    first, second = await records(talk)
    assert seconds(first) == {"sample": 5, "first_token": 5}
    assert seconds(second) == {"queue": 5, "sample": 5, "first_token": 10}


async def test_waiting_for_one_of_the_processs_slots_is_waiting_in_the_queue(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """In a rollout, also after a pause."""
    script = Script.of([call("first"), delay(2)], [delay(3), "Done."])
    parts = timed(Spy(script), mode=Mode.PROTOTYPE, limits=Limits(active_turns=1))
    one = Talk(nursery, parts)
    other = Talk(nursery, parts, beside=one)
    done = await one.turn(input="go", tools=TOOLS)  # from now on the other one has the slot
    other.create(input="go", tools=TOOLS)
    await trio.testing.wait_all_tasks_blocked()
    one.socket.say({"type": "response.append", "input": [output(calls_of(done["response"])[0])]})
    assert (await one.socket.hear_step())[-1]["type"] == "response.completed"
    (turn,) = await records(one)
    assert seconds(turn) == {"queue": 2, "sample": 5, "first_token": 0}


@pytest.mark.parametrize("streams", [False, True])
async def test_over_http_too(nursery: trio.Nursery, autojump_clock: MockClock, streams: bool) -> None:
    parts = timed(Spy(Script.of([delay(5), "Done."])), limits=Limits(active_turns=1))
    nursery.start_soon(parts.post.run)
    turns = HttpTurns(parts, nursery)

    async def ask(**fields: Any) -> None:
        body = encode({"model": "sim", "input": "go", **fields})
        answer = await turns.run(read_object(body), tenant="t", request_id="req_1", watch=Stopwatch(parts.clock))
        if isinstance(answer, SsePort):
            assert [chunk async for chunk in chunks(answer)]

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()
    await ask(stream=streams)
    await trio.testing.wait_all_tasks_blocked()
    assert seconds(parts.post.tally.latest[1]) == {"queue": 5, "sample": 5, "first_token": 10}


class Reader(Spy):
    """Reads for half a second whatever it is given."""

    async def open(self) -> Any:
        return ReaderSequence(self, await Sim.open(self))


class ReaderSequence(SpySequence):
    async def extend(self, ids: Sequence[int]) -> None:
        await trio.sleep(0.5)
        await super().extend(ids)


@pytest.mark.parametrize(("takes", "waited"), [(3.0, 2.0), (0.5, 0.0)])
async def test_a_classifier_beside_rendering_counts_for_as_long_as_it_alone_is_waited_for(
    nursery: trio.Nursery, autojump_clock: MockClock, takes: float, waited: float
) -> None:
    """The engine reads the head, and then the item, while the classifier thinks."""
    classifier = LatencyClassifierConfig(seconds=takes, when="beside")
    talk = Talk(nursery, timed(Reader(Script.of("Done.")), classifiers=(classifier,)))
    await talk.turn(input="go")
    (turn,) = await records(talk)
    expected = {"screen": waited, "extend": 1.0, "first_token": 1.0 + waited}
    assert seconds(turn) == {stage: each for stage, each in expected.items() if each}


class SlowReader(FakeSocket):
    """Is too far behind for four seconds, once."""

    is_slow = True

    async def drain(self) -> None:
        if self.is_slow:
            self.is_slow = False
            await trio.sleep(4)


async def test_waiting_for_a_slow_reader_is_writing_and_not_sampling(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    talk = Talk(nursery, timed(Spy(Script.of(["one", delay(7), "two"]))), SlowReader())
    await talk.turn(input="go")
    (turn,) = await records(talk)
    times = seconds(turn)
    assert times["write"] == 4
    assert times["sample"] == pytest.approx(7, abs=4.001)


async def test_a_client_that_leaves_while_the_model_thinks_leaves_a_turn_that_sampled(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    talk = Talk(nursery, timed(Spy(Script.of([delay(60), "never"]))))
    talk.create(input="go")
    await trio.sleep(9)
    talk.socket.leave()
    (turn,) = await records(talk)
    assert turn.status == "cancelled"
    assert seconds(turn) == {"sample": 9}
    assert turn.timings_ms.total == pytest.approx(9000)


async def test_a_client_that_never_appends_has_had_all_the_time_itself(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    talk = Talk(nursery, timed(Spy(Script.of(call("first"))), mode=Mode.PROTOTYPE, limits=Limits(tool_seconds=30)))
    await talk.turn(input="go", tools=TOOLS)
    assert (await talk.socket.hear_step())[-1]["response"]["error"]["code"] == "tool_timeout"
    (turn,) = await records(talk)
    assert seconds(turn) == {"suspended": 30, "first_token": 0}


async def test_refused_turns_are_timed_too(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    talk = Talk(nursery, timed(Spy(Script.of("Done.")), classifiers=(LatencyClassifierConfig(seconds=2),)))
    await talk.turn(input=42)
    await talk.turn(input="go", previous_response_id="resp_nobody")
    await talk.turn(input="go", model="")
    assert [(each.status, seconds(each)) for each in await records(talk)] == [("refused", {})] * 3


async def test_post_ends_when_the_worker_has_logged_the_turn_and_the_line_says_when_it_was_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The turn took a second and waited two for the worker; its line took three."""
    post_inference = PostInference(max_waiting=1)
    turn = record(1)
    with caplog.at_level(logging.INFO, "respserver.turn"):
        post_inference.submit(turn, Stopwatch(iter([0.0, 1.0, 3.0, 6.0]).__next__))
        post_inference.close()
        await post_inference.run()
    line = vars(caplog.records[0])
    assert (line["receive_ms"], line["total_ms"], line["post_ms"]) == (1000, 1000, 2000)
    assert turn.timings_ms == Timings(receive=1000, total=1000, post=5000)
