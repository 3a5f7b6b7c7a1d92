"""OpenAI's Python SDK over HTTP: plain, streamed, parsed, its own tool runner; and the errors that its users catch."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal

import openai
import pydantic
import pytest
from openai.lib._tools import pydantic_responses_function_tool
from openai.lib.responses_tool_runner import RegisteredFunction, ResponsesToolRunner

from respserver.config import Mode
from respserver.embed import RunningServer
from tests.clients.openai_kit import (
    ANSWER,
    BREAKS,
    HELLO,
    HIGH_WATER,
    REHEARSED,
    TIDES,
    TOOL,
    Tide,
    async_sdk,
    sdk,
    tide_server,
    tool_output,
)

pytestmark = pytest.mark.client


class Voyage(pydantic.BaseModel):
    """An answer with everything that a schema of the SDK's making has in it."""

    stops: list[Tide]
    kind: Literal["sail", "motor"]
    captain: str | None
    crew: int


@pytest.fixture(scope="module", params=list(Mode))
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """HTTP is the same in both modes, so each test runs against both."""
    with tide_server(request.param) as running:
        yield running


@pytest.fixture
def client(server) -> Iterator[openai.OpenAI]:
    with sdk(server) as opened:
        yield opened


def test_a_plain_create_answers(client) -> None:
    response = client.responses.create(model=HELLO, input="hi")
    assert response.output_text == "Hello there."
    assert response.status == "completed"
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


def test_a_plain_tool_loop_goes_on_from_the_previous_response(client) -> None:
    first = client.responses.create(model=TIDES, input="When?", tools=[TOOL])
    second = client.responses.create(model=TIDES, input=tool_output(first), previous_response_id=first.id, tools=[TOOL])
    assert second.output_text == ANSWER
    assert second.previous_response_id == first.id


def test_a_tool_loop_that_sends_the_sdks_own_items_back_answers_too(client) -> None:
    history = [{"role": "user", "content": "When?"}]
    first = client.responses.create(model=TIDES, input=history, tools=[TOOL], store=False)
    history += [*first.output, *tool_output(first)]
    second = client.responses.create(model=TIDES, input=history, tools=[TOOL], store=False)
    assert second.output_text == ANSWER


def test_a_streamed_create_shows_its_text_piece_by_piece(client) -> None:
    with client.responses.create(model=HELLO, input="hi", stream=True) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert len(deltas) > 1
    assert "".join(deltas) == events[-1].response.output_text == "Hello there."


def test_a_streamed_tool_loop_goes_on_from_the_previous_response(client) -> None:
    fields = {"model": TIDES, "tools": [TOOL], "stream": True}
    *_, end = client.responses.create(input="When?", **fields)
    *_, end = client.responses.create(input=tool_output(end.response), previous_response_id=end.response.id, **fields)
    assert end.type == "response.completed"
    assert end.response.output_text == ANSWER


def test_the_stream_helper_loops_and_keeps_the_final_response(client) -> None:
    with client.responses.stream(model=TIDES, input="When?", tools=[TOOL]) as stream:
        arguments = [event.snapshot for event in stream if event.type == "response.function_call_arguments.delta"]
        first = stream.get_final_response()
    assert arguments[-1] == '{"place":"Brest"}'
    with client.responses.stream(
        model=TIDES, input=tool_output(first), previous_response_id=first.id, tools=[TOOL]
    ) as stream:
        assert stream.get_final_response().output_text == ANSWER


@pytest.mark.parametrize("streamed", [False, True])
def test_the_sdks_own_tool_runner_comes_to_an_end(client, streamed) -> None:
    tool = pydantic_responses_function_tool(Tide, name="lookup_tide")
    asked: list[Tide] = []

    def look_up(arguments: Tide) -> str:
        asked.append(arguments)
        return HIGH_WATER

    runner = ResponsesToolRunner(functions=[RegisteredFunction.from_tool(tool, execute=look_up)])
    response = runner.run(client, {"model": TIDES, "input": "When?"}, stream=streamed)
    assert response.output_text == ANSWER
    assert asked == [Tide(place="Brest")]


def test_parse_gives_an_object_of_the_asked_type(client) -> None:
    response = client.responses.parse(model=REHEARSED, input="Where?", text_format=Tide)
    assert isinstance(response.output_parsed, Tide)


def test_a_parsed_answer_streams_as_the_text_of_an_object_of_the_asked_type(client) -> None:
    with client.responses.stream(model=REHEARSED, input="Where?", text_format=Tide) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        response = stream.get_final_response()
    assert isinstance(response.output_parsed, Tide)
    assert Tide.model_validate_json("".join(deltas)) == response.output_parsed


def test_a_nested_model_with_choices_and_lists_is_parsed(client) -> None:
    response = client.responses.parse(model=REHEARSED, input="Plan it.", text_format=Voyage)
    assert isinstance(response.output_parsed, Voyage)


def test_arguments_of_a_called_tool_are_parsed(client) -> None:
    tool = pydantic_responses_function_tool(Tide, name="lookup_tide")
    response = client.responses.parse(model=TIDES, input="When?", tools=[tool])
    assert response.output[-1].parsed_arguments == Tide(place="Brest")


def test_a_stored_response_can_be_retrieved_until_it_is_deleted(client) -> None:
    response = client.responses.create(model=TIDES, input="When?", tools=[TOOL])
    assert client.responses.retrieve(response.id) == response
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.retrieve(response.id)
    assert caught.value.code == "response_not_found"


def test_models_are_listed_and_retrieved(client) -> None:
    (model,) = client.models.list()
    assert client.models.retrieve(model.id) == model


def test_a_wrong_key_is_an_authentication_error(server) -> None:
    with sdk(server, key="wrong") as client, pytest.raises(openai.AuthenticationError) as caught:
        client.responses.create(model=HELLO, input="hi")
    assert caught.value.code == "invalid_api_key"


@pytest.mark.parametrize("streamed", [False, True])
def test_an_unknown_previous_response_is_a_bad_request(client, streamed) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(model=HELLO, input="hi", previous_response_id="resp_unknown", stream=streamed)
    assert (caught.value.code, caught.value.param) == ("previous_response_not_found", "previous_response_id")


def test_a_model_failure_is_a_server_error_with_its_message(client) -> None:
    with pytest.raises(openai.InternalServerError, match="The model broke") as caught:
        client.responses.create(model=BREAKS, input="hi")
    assert caught.value.code == "server_error"


def test_a_model_failure_in_a_stream_raises_after_the_text_before_it(client) -> None:
    seen = []
    with (
        pytest.raises(openai.APIError, match="The model broke") as caught,
        client.responses.create(model=BREAKS, input="hi", stream=True) as stream,
    ):
        seen.extend(event for event in stream)
    assert (
        "".join(event.delta for event in seen if event.type == "response.output_text.delta") == "It begins well, then"
    )
    assert caught.value.code == "server_error"


def test_asyncio_loops_plain_streamed_and_with_the_helper(server) -> None:
    async def loop() -> list[str]:
        async with async_sdk(server) as client:
            first = await client.responses.create(model=TIDES, input="When?", tools=[TOOL])
            following = {
                "model": TIDES, "input": tool_output(first), "previous_response_id": first.id, "tools": [TOOL]
            }  # fmt: skip
            plain = await client.responses.create(**following)
            async for event in await client.responses.create(**following, stream=True):
                last = event
            async with client.responses.stream(**following) as stream:
                final = await stream.get_final_response()
            return [plain.output_text, last.response.output_text, final.output_text]

    assert asyncio.run(loop()) == [ANSWER] * 3


def test_asyncio_raises_the_same_errors(server) -> None:
    async def errors() -> None:
        async with async_sdk(server) as client:
            with pytest.raises(openai.BadRequestError):
                await client.responses.create(model=HELLO, input="hi", previous_response_id="resp_unknown")
            with pytest.raises(openai.APIError, match="The model broke"):
                async for _ in await client.responses.create(model=BREAKS, input="hi", stream=True):
                    pass
        async with async_sdk(server, key="wrong") as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()

    asyncio.run(errors())
