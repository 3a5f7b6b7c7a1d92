"""OpenAI's Python SDK steers responses that run: on a plain connection, and on lanes, whose events it tells apart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from respserver.embed import RunningServer
from tests.clients.openai_kit import CALLS, HELLO, PATIENCE, THINKS, TOOL, async_sdk, tide_server, tool_output
from tests.clients.test_openai_lanes import CREATE, LANES, run, turn, until
from tests.support.live import TERMINALS

pytestmark = pytest.mark.client

ABOUT_TURNS = {"response.created", *TERMINALS, "error"}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with tide_server() as running:
        yield running


def is_told(kind: str) -> bool:
    """Whether an event begins or ends a turn, or is about steering."""
    return kind in ABOUT_TURNS or "steer" in kind


async def speaking(lane: Any) -> Any:
    """The response that runs, once it has said something: a script asks who has not for its first step again."""
    target = (await until(lane, "response.created")).response
    await until(lane, "response.output_item.done")
    return target


async def steer(opened: Any, response: Any, text: str) -> None:
    await opened.connection.response.steer(previous_response_id=response.id, input=text)


async def story(lane: Any, ends: int) -> list[Any]:
    """What a lane tells of turns and steering, until so many of its turns have ended."""
    told: list[Any] = []
    while sum(event.type in TERMINALS for event in told) < ends:
        event = await lane.recv()
        if is_told(event.type):
            told.append(event)
    return told


def test_a_plain_connection_steers_its_response(server) -> None:
    async def body() -> tuple[Any, list[Any]]:
        async with (
            asyncio.timeout(PATIENCE),
            async_sdk(server) as client,
            client.responses.connect() as connection,
        ):
            await connection.response.create(model=THINKS, input="Which way?")
            target = await speaking(connection)
            await connection.response.steer(previous_response_id=target.id, input="Go left.")
            return target, await story(connection, 2)

    target, told = asyncio.run(body())
    accepted, incomplete, created, completed = told
    assert accepted.type == "response.steer.accepted"
    assert accepted.steer.previous_response_id == target.id
    assert incomplete.response.incomplete_details.reason == "steered"
    assert created.response.previous_response_id == target.id
    assert (completed.response.id, completed.response.output_text) == (created.response.id, "As you say.")


def test_eight_lanes_are_steered_at_once_and_each_hears_its_own(server) -> None:
    async def steered(opened: Any, lane: Any) -> None:
        await lane.send({**CREATE, "model": THINKS, "input": "Which way?"})
        target = await speaking(lane)
        await steer(opened, target, "Go left.")
        accepted, incomplete, created, completed = await story(lane, 2)
        assert accepted.type == "response.steer.accepted"
        assert accepted.steer.previous_response_id == incomplete.response.id == target.id
        assert incomplete.response.incomplete_details.reason == "steered"
        assert created.response.previous_response_id == target.id
        assert completed.response.output_text == "As you say."
        assert (await lane.get_final_response()).id == completed.response.id

    async def body(opened: Any) -> None:
        lanes = [opened.default, *map(opened.lane, LANES)]
        await asyncio.gather(*(steered(opened, lane) for lane in lanes))

    run(server, body)


@pytest.mark.slow
def test_steering_waits_for_the_output_that_its_response_is_owed(server) -> None:
    async def body(opened: Any) -> None:
        lane = opened.lane(LANES[0])
        await lane.send({**CREATE, "model": CALLS, "input": "When?", "tools": [TOOL]})
        target = (await until(lane, "response.created")).response
        await until(lane, "response.output_item.added")
        await steer(opened, target, "In metres.")
        accepted, completed = await story(lane, 1)
        pending = await lane.recv()
        assert (accepted.type, pending.type) == ("response.steer.accepted", "response.steer.pending")
        assert (pending.steer.id, pending.reason) == (accepted.steer.id, "waiting_for_required_input")
        (stub,) = pending.required_input
        (asked,) = tool_output(completed.response, "12:04, 6 m")
        assert (stub.type, stub.call_id) == ("function_call_output", asked["call_id"])
        final = await turn(lane, model=CALLS, input=[asked], previous_response_id=target.id, tools=[TOOL])
        assert final.output_text == "High water at 12:04, 6 m."

    run(server, body)


def test_steering_that_comes_too_late_fails_on_its_lane_and_gives_its_input_back(server) -> None:
    async def body(opened: Any) -> None:
        lane = opened.lane(LANES[0])
        response = await turn(lane, model=HELLO, input="hi")
        await steer(opened, response, "Go left.")
        failed = await lane.recv()
        assert (failed.type, failed.error.code) == ("response.steer.failed", "response_already_completed")
        assert failed.steer.input == "Go left."
        assert (await turn(lane, model=HELLO, input="hi")).output_text == "Hello there."

    run(server, body)


def test_steering_of_nobodys_response_fails_on_the_default_lane(server) -> None:
    async def body(opened: Any) -> None:
        opened.lane(LANES[0])
        await opened.connection.response.steer(previous_response_id="resp_unknown", input="Go left.")
        failed = await opened.default.recv()
        assert (failed.type, failed.error.code) == ("response.steer.failed", "response_not_found")

    run(server, body)
