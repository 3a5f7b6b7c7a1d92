"""OpenAI's Python SDK over WebSocket: ``connect()`` as it is, and the session, lane and accumulator built on it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketAccumulator,
    ResponsesWebSocketError,
    ResponsesWebSocketSession,
)
from websockets.exceptions import InvalidStatus

from respserver.embed import RunningServer
from tests.clients.openai_kit import (
    ANSWER,
    BREAKS,
    HELLO,
    LIMITS,
    PATIENCE,
    TIDES,
    TOOL,
    async_sdk,
    sdk,
    tool_output,
)
from tests.support.live import TERMINALS

pytestmark = pytest.mark.client


@pytest.fixture(params=["shipped", "prototype"])
def either(request: pytest.FixtureRequest) -> RunningServer:
    """A server of each mode, for turns without tools."""
    running: RunningServer = request.getfixturevalue(request.param)
    return running


def test_a_connection_iterates_the_events_of_a_turn(either) -> None:
    with sdk(either) as client, client.responses.connect() as connection:
        connection.response.create(model=HELLO, input="hi")
        events = []
        for event in connection:
            events.append(event)
            if event.type == "response.completed":
                break
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello there."


def test_a_connection_chains_turn_after_turn(either) -> None:
    with sdk(either) as client, client.responses.connect() as connection:
        first = turn(connection, model=HELLO, input="hi")
        second = turn(connection, model=HELLO, input="hi", previous_response_id=first.id, store=False)
    assert (first.output_text, second.output_text) == ("Hello there.", "Hello again.")


def test_a_connection_loops_over_a_tool(shipped) -> None:
    with sdk(shipped) as client, client.responses.connect() as connection:
        first = turn(connection, model=TIDES, input="When?", tools=[TOOL], store=False)
        second = turn(
            connection,
            model=TIDES,
            input=tool_output(first),
            previous_response_id=first.id,
            tools=[TOOL],
            store=False,
        )
    assert second.output_text == ANSWER


def test_a_warmed_up_connection_goes_on_from_the_warm_up(either) -> None:
    with sdk(either) as client, client.responses.connect() as connection:
        warm = turn(connection, model=HELLO, input="hi", generate=False)
        assert warm.output == []
        assert turn(connection, model=HELLO, input="go", previous_response_id=warm.id).output_text == "Hello there."


def test_asyncio_iterates_and_loops_over_a_tool(shipped) -> None:
    async def loop() -> tuple[list[Any], str]:
        async with asyncio.timeout(PATIENCE), async_sdk(shipped) as client, client.responses.connect() as connection:
            await connection.response.create(model=TIDES, input="When?", tools=[TOOL])
            events = []
            async for event in connection:
                events.append(event)
                if event.type in TERMINALS:
                    break
            first = events[-1].response
            await connection.response.create(
                model=TIDES, input=tool_output(first), previous_response_id=first.id, tools=[TOOL]
            )
            while (event := await connection.recv()).type not in TERMINALS:
                pass
            return events, event.response.output_text

    events, answer = asyncio.run(loop())
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert answer == ANSWER


def test_a_session_gives_final_responses_on_its_default_lane(either) -> None:
    with session(either) as lane:
        lane.send({"type": "response.create", "model": HELLO, "input": "hi"})
        first = lane.get_final_response(timeout=PATIENCE)
        lane.send({"type": "response.create", "model": HELLO, "input": "hi", "previous_response_id": first.id})
        assert lane.recv(timeout=PATIENCE).type == "response.created"
        assert lane.get_final_response(timeout=PATIENCE).output_text == "Hello again."


def test_a_session_loops_over_a_tool(shipped) -> None:
    with session(shipped) as lane:
        fields = {"type": "response.create", "model": TIDES, "tools": [TOOL]}
        lane.send({**fields, "input": "When?"})
        first = lane.get_final_response(timeout=PATIENCE)
        lane.send({**fields, "input": tool_output(first), "previous_response_id": first.id})
        assert lane.recv(timeout=PATIENCE).type == "response.created"
        assert lane.get_final_response(timeout=PATIENCE).output_text == ANSWER


def test_an_accumulator_rebuilds_the_items_before_the_terminal_event_tells_them(shipped) -> None:
    accumulator = ResponsesWebSocketAccumulator()
    with session(shipped) as lane:
        lane.send({"type": "response.create", "model": TIDES, "input": "When?", "tools": [TOOL]})
        while (event := lane.recv(timeout=PATIENCE)).type not in TERMINALS:
            accumulator.add_event(event)
        before = accumulator.snapshot().output
        accumulator.add_event(event)
    assert before == accumulator.snapshot().output
    assert [(item.type, item.name, item.arguments) for item in before] == [
        ("reasoning", None, ""),
        ("function_call", "lookup_tide", '{"place":"Brest"}'),
    ]
    assert accumulator.get_final_response() == event.response


def test_asyncio_loops_over_a_tool_in_a_session(shipped) -> None:
    async def loop() -> tuple[str, str]:
        async with asyncio.timeout(PATIENCE), async_session(shipped) as lane:
            accumulator = ResponsesWebSocketAccumulator()
            fields = {"type": "response.create", "model": TIDES, "tools": [TOOL]}
            await lane.send({**fields, "input": "When?"})
            first = await lane.get_final_response()
            await lane.send({**fields, "input": tool_output(first), "previous_response_id": first.id})
            while (event := await lane.recv()).type not in TERMINALS:
                accumulator.add_event(event)
            return accumulator.snapshot().output_text, (await lane.get_final_response()).output_text

    assert asyncio.run(loop()) == (ANSWER, ANSWER)


def test_a_refusal_is_an_error_event_and_the_connection_goes_on(either) -> None:
    with sdk(either) as client, client.responses.connect() as connection:
        connection.response.create(model=HELLO, input="hi", previous_response_id="resp_unknown")
        event = connection.recv()
        assert (event.type, event.status) == ("error", 400)
        assert (event.error.code, event.error.param) == ("previous_response_not_found", "previous_response_id")
        assert turn(connection, model=HELLO, input="hi").output_text == "Hello there."


def test_a_refusal_raises_in_a_session(either) -> None:
    with session(either) as lane:
        lane.send({"type": "response.create", "model": HELLO, "input": "hi", "previous_response_id": "resp_unknown"})
        with pytest.raises(ResponsesWebSocketError) as caught:
            lane.get_final_response(timeout=PATIENCE)
    assert caught.value.event.error.code == "previous_response_not_found"


def test_a_model_failure_ends_the_turn_as_failed(either) -> None:
    with sdk(either) as client, client.responses.connect() as connection:
        response = turn(connection, model=BREAKS, input="hi")
    assert response.status == "failed"
    assert (response.error.code, response.error.message) == ("server_error", "The model broke.")


def test_an_upgrade_with_a_wrong_key_is_refused_with_a_json_body(shipped) -> None:
    with (
        sdk(shipped, key="wrong") as client,
        pytest.raises(InvalidStatus) as caught,
        client.responses.connect(),
    ):
        pass
    refused(caught.value)


def test_an_upgrade_with_a_wrong_key_is_refused_under_asyncio(shipped) -> None:
    async def connect() -> None:
        async with async_sdk(shipped, key="wrong") as client:
            with pytest.raises(InvalidStatus) as caught:
                await client.responses.connect().enter()
        refused(caught.value)

    asyncio.run(connect())


def refused(error: InvalidStatus) -> None:
    assert error.response.status_code == 401
    assert json.loads(bytes(error.response.body))["error"]["code"] == "invalid_api_key"


def turn(connection: Any, **fields: Any) -> Any:
    """One create on a plain connection; its terminal Response."""
    connection.response.create(**fields)
    while (event := connection.recv()).type not in TERMINALS:
        assert event.type != "error", event
    return event.response


@contextmanager
def session(server: RunningServer) -> Iterator[Any]:
    """The default lane of a session."""
    with (
        sdk(server) as client,
        client.responses.connect() as connection,
        ResponsesWebSocketSession(connection, limits=LIMITS) as opened,
    ):
        yield opened.default


@asynccontextmanager
async def async_session(server: RunningServer) -> AsyncIterator[Any]:
    """The same for asyncio."""
    async with (
        async_sdk(server) as client,
        client.responses.connect() as connection,
        AsyncResponsesWebSocketSession(connection, limits=LIMITS) as opened,
    ):
        yield opened.default
