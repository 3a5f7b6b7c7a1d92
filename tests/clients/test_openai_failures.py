"""F17: a model that fails in the middle of a stream is an exception in OpenAI's SDKs for Python and Node.

Whoever lacks Node or cannot install the SDK from npm sees those tests skipped; in CI, where ``CI`` is set, they fail.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
import trio

from respserver.embed import RunningServer
from respserver.engines.sim import Script, conversation, fault, step
from tests.clients.node_tools import run_node
from tests.clients.openai_kit import KEY, sdk

pytestmark = pytest.mark.client

WELL, BREAKS = "well", "breaks"
"""Model names."""
MESSAGE = "The model fell over."
SCRIPT = Script(
    conversations=(
        conversation("All is well.", model=WELL),
        conversation(
            step("one two three four five six", fault=fault(MESSAGE, "rate_limit_exceeded"), fault_after_tokens=7),
            model=BREAKS,
        ),
    )
)
DELTAS = ["one", " two", " three"]


@pytest.fixture
async def server(serve: Any) -> RunningServer:
    running: RunningServer = await serve(SCRIPT, api_key=(KEY,))
    return running


@pytest.mark.parametrize("way", ["create", "stream"])
async def test_f17_the_python_sdk_raises_after_three_deltas(server: RunningServer, way: str) -> None:
    seen, error = await trio.to_thread.run_sync(partial(stream_in_python, server, BREAKS, way))
    assert seen == DELTAS
    assert isinstance(error, openai.APIError)
    assert error.message == MESSAGE
    assert (error.type, error.code, error.param) == ("server_error", "rate_limit_exceeded", None)


@pytest.mark.parametrize("way", ["create", "stream"])
async def test_f17_the_python_sdk_raises_nothing_if_nothing_fails(server: RunningServer, way: str) -> None:
    seen, error = await trio.to_thread.run_sync(partial(stream_in_python, server, WELL, way))
    assert "".join(seen) == "All is well."
    assert error is None


@pytest.mark.parametrize("is_known", [True, False], ids=["wrong path", "wrong key"])
async def test_the_python_sdk_reads_every_refusal_that_comes_before_its_body_is_read(
    server: RunningServer, is_known: bool
) -> None:
    """Without retries of its own: a connection that is closed behind an answer must not be used again."""
    wrong = await trio.to_thread.run_sync(partial(refusals_in_python, server, KEY if is_known else "wrong"))
    assert wrong == [openai.NotFoundError if is_known else openai.AuthenticationError] * 20


def refusals_in_python(server: RunningServer, key: str) -> list[type[Exception]]:
    """What twenty counts of tokens raise, which this server does not have."""
    raised: list[type[Exception]] = []
    with sdk(server, key) as client:
        for _ in range(20):
            try:
                client.responses.input_tokens.count(model=WELL, input="hi")
            except openai.APIError as error:
                raised.append(type(error))
    return raised


def stream_in_python(server: RunningServer, model: str, way: str) -> tuple[list[str], Exception | None]:
    """The deltas of a stream, and what was raised."""
    seen: list[str] = []
    with sdk(server) as client:
        events: Any = (  # Any: two classes of the SDK with nothing in common but this
            client.responses.create(model=model, input="hi", stream=True)
            if way == "create"
            else client.responses.stream(model=model, input="hi")
        )
        try:
            with events as stream:
                seen.extend(event.delta for event in stream if event.type == "response.output_text.delta")
        except openai.OpenAIError as error:
            return seen, error
    return seen, None


@pytest.mark.slow
@pytest.mark.parametrize("way", ["create", "stream"])
async def test_f17_the_node_sdk_raises_after_three_deltas(node_sdk: Path, server: RunningServer, way: str) -> None:
    outcome = await stream_in_node(node_sdk, server, BREAKS, way)
    assert outcome["deltas"] == DELTAS
    assert outcome["raised"]["is_api_error"]
    assert MESSAGE in outcome["raised"]["message"]
    assert outcome["raised"]["type"] == "server_error"
    assert outcome["raised"]["code"] == "rate_limit_exceeded"
    assert "response.completed" not in outcome["types"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["create", "stream"])
async def test_f17_the_node_sdk_raises_nothing_if_nothing_fails(
    node_sdk: Path, server: RunningServer, way: str
) -> None:
    outcome = await stream_in_node(node_sdk, server, WELL, way)
    assert "".join(outcome["deltas"]) == "All is well."
    assert outcome["raised"] is None
    assert outcome["types"][-1] == "response.completed"


async def stream_in_node(folder: Path, server: RunningServer, model: str, way: str) -> dict[str, Any]:
    return await run_node("openai_node_errors.mjs", folder, server.base_url, KEY, model, way)
