"""F17: a model that fails in the middle of a stream is an exception in OpenAI's SDKs for Python and Node.

Whoever lacks Node or cannot install the SDK from npm sees those tests skipped; in CI, where ``CI`` is set, they fail.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest
import trio

from respserver.embed import RunningServer
from respserver.engines.sim import Script, conversation, fault, step
from tests.clients.node_tools import installed
from tests.clients.openai_kit import KEY, sdk

pytestmark = pytest.mark.client

SDK_VERSION = "7.59.0"
"""On npm."""
NODE_SECONDS = 30.0
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


@pytest.fixture(scope="session")
def node_sdk() -> Path:
    """The folder that the SDK for Node is installed in."""
    return installed("openai", SDK_VERSION, "openai-node")


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
    script = Path(__file__).with_name("openai_node_errors.mjs")
    command = ["node", str(script), str(folder), server.base_url, KEY, model, way]
    with trio.fail_after(NODE_SECONDS):
        run = await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
    outcome: dict[str, Any] = json.loads(run.stdout)
    return outcome
