"""OpenAI's Python SDK with several lanes on one WebSocket: tool loops side by side, forks, warm-ups, errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketAccumulator,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
    ResponsesWebSocketSession,
)

from respserver.config import Mode
from respserver.embed import RunningServer
from tests.clients.openai_kit import (
    ANSWER,
    BREAKS,
    HELLO,
    PATIENCE,
    TIDES,
    TOOL,
    async_sdk,
    sdk,
    tide_server,
    tool_output,
)
from tests.support.live import TERMINALS

pytestmark = pytest.mark.client

LANES = [f"lane-{number}" for number in range(8)]
LIMITS = ResponsesWebSocketLimits(
    max_lanes=len(LANES) + 1,  # the SDK counts the default lane
    max_events_per_lane=1024,
    max_events=4096,
    max_bytes_per_lane=1 << 22,
    max_bytes=1 << 24,
)
ROUNDS = 3
CREATE = {"type": "response.create", "store": False}


@pytest.fixture(scope="module", params=list(Mode))
def either(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A server of each mode, for turns without tools."""
    with tide_server(request.param) as running:
        yield running


@asynccontextmanager
async def session(server: RunningServer) -> AsyncIterator[AsyncResponsesWebSocketSession]:
    async with (
        async_sdk(server) as client,
        client.responses.connect() as connection,
        AsyncResponsesWebSocketSession(connection, limits=LIMITS) as opened,
    ):
        yield opened


def run(server: RunningServer, body: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
    """What ``body`` does with a session of the server. All of it has a deadline."""

    async def main() -> Any:
        async with asyncio.timeout(3 * PATIENCE), session(server) as opened:
            return await body(opened)

    return asyncio.run(main())


async def turn(lane: Any, **fields: Any) -> Any:
    """One create on a lane; its terminal Response."""
    await lane.send({**CREATE, **fields})
    assert (await lane.recv()).type == "response.created"
    return await lane.get_final_response()


async def until(lane: Any, kind: str) -> Any:
    while (event := await lane.recv()).type != kind:
        assert event.type not in {*TERMINALS, "error"}, event
    return event


def test_eight_lanes_run_tool_loops_at_once(shipped) -> None:
    async def loops(lane: Any, name: str) -> list[str]:
        answers = []
        for number in range(ROUNDS):
            first = await turn(lane, model=TIDES, input="When?", tools=[TOOL])
            asked = tool_output(first, f"{name}, {number}")
            second = await turn(lane, model=TIDES, input=asked, previous_response_id=first.id, tools=[TOOL])
            answers.append(second.output_text)
        return answers

    async def body(opened: Any) -> list[list[str]]:
        return await asyncio.gather(*(loops(opened.lane(name), name) for name in LANES))

    assert run(shipped, body) == [[f"High water at {name}, {number}." for number in range(ROUNDS)] for name in LANES]


def test_eight_threads_run_tool_loops_at_once(shipped) -> None:
    def loop(lane: Any, name: str) -> str:
        lane.send({**CREATE, "model": TIDES, "input": "When?", "tools": [TOOL]})
        first = lane.get_final_response(timeout=PATIENCE)
        asked = tool_output(first, name)
        lane.send({**CREATE, "model": TIDES, "input": asked, "previous_response_id": first.id, "tools": [TOOL]})
        assert lane.recv(timeout=PATIENCE).type == "response.created"
        answer: str = lane.get_final_response(timeout=PATIENCE).output_text
        return answer

    with (
        sdk(shipped) as client,
        client.responses.connect() as connection,
        ResponsesWebSocketSession(connection, limits=LIMITS) as opened,
        ThreadPoolExecutor(len(LANES)) as threads,
    ):
        answers = list(threads.map(loop, [opened.lane(name) for name in LANES], LANES))
    assert answers == [f"High water at {name}." for name in LANES]


def test_an_accumulator_a_lane_sees_its_own_response_alone(shipped) -> None:
    async def collect(lane: Any) -> bool:
        accumulator = ResponsesWebSocketAccumulator()
        await lane.send({**CREATE, "model": TIDES, "input": "When?", "tools": [TOOL]})
        kind = ""
        while kind not in TERMINALS:
            event = await lane.recv()
            kind = event.type
            accumulator.add_event(event)  # raises if the event is another lane's or another response's
        details = accumulator.detailed_snapshot()
        return bool(accumulator.get_final_response() == event.response and details["stream_id"] == event.stream_id)

    async def body(opened: Any) -> list[bool]:
        return await asyncio.gather(*(collect(opened.lane(name)) for name in LANES))

    assert run(shipped, body) == [True] * len(LANES)


def test_forks_go_on_from_one_response_while_its_own_lane_advances(either) -> None:
    async def body(opened: Any) -> tuple[list[str], str]:
        source, forks = opened.default, [opened.lane(name) for name in LANES]
        parent = await turn(source, model=HELLO, input="hi")
        following = {**CREATE, "model": HELLO, "input": "hi", "previous_response_id": parent.id}
        for lane in forks:
            await lane.send(following)
        await asyncio.gather(*(until(lane, "response.in_progress") for lane in forks))  # their parent is bound
        last = await turn(source, model=HELLO, input="hi", previous_response_id=parent.id)
        finals = await asyncio.gather(*(lane.get_final_response() for lane in forks))
        assert {final.previous_response_id for final in finals} == {parent.id}
        return [final.output_text for final in finals], last.output_text

    assert run(either, body) == (["Hello again."] * len(LANES), "Hello again.")


def test_forks_answer_the_same_call_in_their_own_ways(shipped) -> None:
    async def body(opened: Any) -> list[str]:
        parent = await turn(opened.default, model=TIDES, input="When?", tools=[TOOL])

        async def answer(name: str) -> str:
            asked = tool_output(parent, name)
            lane = opened.lane(name)
            final = await turn(lane, model=TIDES, input=asked, previous_response_id=parent.id, tools=[TOOL])
            return str(final.output_text)

        return await asyncio.gather(*map(answer, LANES))

    assert run(shipped, body) == [f"High water at {name}." for name in LANES]


def test_a_warmed_up_lane_is_the_trunk_of_the_others(either) -> None:
    async def body(opened: Any) -> list[str]:
        warm = await turn(opened.lane("trunk"), model=HELLO, input="hi", generate=False)
        assert (warm.output, warm.usage.output_tokens) == ([], 0)

        async def answer(name: str) -> str:
            final = await turn(opened.lane(name), model=HELLO, previous_response_id=warm.id)
            return str(final.output_text)

        return await asyncio.gather(*map(answer, LANES[1:]))

    assert run(either, body) == ["Hello there."] * (len(LANES) - 1)


def test_an_error_is_raised_on_its_lane_and_no_other(either) -> None:
    async def body(opened: Any) -> None:
        refused, failing, well = [opened.lane(name) for name in LANES[:3]]
        await refused.send({**CREATE, "model": HELLO, "input": "hi", "previous_response_id": "resp_unknown"})
        await failing.send({**CREATE, "model": BREAKS, "input": "hi"})
        await well.send({**CREATE, "model": HELLO, "input": "hi"})
        with pytest.raises(ResponsesWebSocketError) as caught:
            await refused.get_final_response()
        assert caught.value.event.error.code == "previous_response_not_found"
        failed = await failing.get_final_response()
        assert (failed.status, failed.error.message) == ("failed", "The model broke.")
        assert (await well.get_final_response()).output_text == "Hello there."
        for lane in (refused, failing):
            assert (await turn(lane, model=HELLO, input="hi")).output_text == "Hello there."

    run(either, body)


def test_an_error_that_is_no_lanes_comes_on_the_default_lane(either) -> None:
    async def body(opened: Any) -> None:
        lane = opened.lane(LANES[0])
        await opened.connection.send_raw(json.dumps({"type": "session.update"}))
        event = await opened.default.recv()
        assert (event.type, event.error.code) == ("error", "unknown_event_type")
        assert (await turn(lane, model=HELLO, input="hi")).output_text == "Hello there."

    run(either, body)


def test_a_lane_that_is_closed_here_may_be_taken_up_by_another_session(shipped) -> None:
    """The lane is the connection's: another one knows nothing of it, but what is stored."""

    async def body(opened: Any) -> Any:
        return await turn(opened.lane("plan"), model=TIDES, input="When?", tools=[TOOL], store=True)

    first = run(shipped, body)

    async def again(opened: Any) -> Any:
        asked = tool_output(first)
        lane = opened.lane("plan")
        return await turn(lane, model=TIDES, input=asked, previous_response_id=first.id, tools=[TOOL])

    assert run(shipped, again).output_text == ANSWER
