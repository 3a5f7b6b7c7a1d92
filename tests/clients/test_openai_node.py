"""OpenAI's SDK for Node: lanes of one WebSocket, and the helpers over HTTP that parse and stream.

Whoever lacks Node or cannot install the SDK from npm sees these tests skipped; in CI, where ``CI`` is set, they fail.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from respserver.config import Mode
from respserver.embed import RunningServer
from tests.clients.node_tools import run_node
from tests.clients.openai_kit import ANSWER, KEY, SCRIPT

pytestmark = [pytest.mark.client, pytest.mark.slow]

LANES = [f"lane-{number}" for number in range(8)]
EITHER = pytest.mark.parametrize("mode", list(Mode))


async def start(serve: Any, mode: Mode = Mode.SHIPPED) -> RunningServer:
    server: RunningServer = await serve(SCRIPT, mode=mode, api_key=(KEY,))
    return server


async def on_lanes(folder: Path, server: RunningServer, play: str) -> Any:
    return (await run_node("openai_node_lanes.mjs", folder, server.base_url, KEY, play))["result"]


async def over_http(folder: Path, server: RunningServer, play: str) -> Any:
    return await run_node("openai_node_http.mjs", folder, server.base_url, KEY, play)


async def test_eight_lanes_run_tool_loops_at_once(node_sdk, serve) -> None:
    answers = await on_lanes(node_sdk, await start(serve), "toolLoops")
    assert answers == [[f"High water at {name}, {number}." for number in range(3)] for name in LANES]


@EITHER
async def test_forks_go_on_from_one_response_while_its_own_lane_advances(node_sdk, serve, mode) -> None:
    answers = await on_lanes(node_sdk, await start(serve, mode), "forks")
    assert answers == ["Hello again."] * (1 + len(LANES))


@EITHER
async def test_a_warmed_up_lane_is_the_trunk_of_the_others(node_sdk, serve, mode) -> None:
    answers = await on_lanes(node_sdk, await start(serve, mode), "warmUp")
    assert answers == ["Hello there."] * (len(LANES) - 1)


@EITHER
async def test_an_error_is_raised_on_its_lane_and_no_other(node_sdk, serve, mode) -> None:
    told = await on_lanes(node_sdk, await start(serve, mode), "errors")
    assert (told["code"], told["status"]) == ("previous_response_not_found", "failed")
    assert told["texts"] == ["Hello there."] * 3


async def test_eight_lanes_are_steered_at_once_and_each_hears_its_own(node_sdk, serve) -> None:
    told = await on_lanes(node_sdk, await start(serve), "steering")
    story = ["response.created", "response.steer.accepted", "response.created", "response.completed"]
    assert told == [story] * len(LANES)


async def test_parse_gives_an_object_that_the_schema_takes(node_sdk, serve) -> None:
    assert await over_http(node_sdk, await start(serve), "parse") == {"parsed": True}


async def test_a_parsed_answer_streams_as_the_text_of_the_same_object(node_sdk, serve) -> None:
    assert await over_http(node_sdk, await start(serve), "streamParsed") == {"same": True}


async def test_arguments_of_a_called_tool_are_parsed(node_sdk, serve) -> None:
    assert await over_http(node_sdk, await start(serve), "parseArguments") == {"place": "Brest"}


async def test_the_stream_helper_loops_over_a_tool(node_sdk, serve) -> None:
    assert await over_http(node_sdk, await start(serve), "streamToolLoop") == {"text": ANSWER}
