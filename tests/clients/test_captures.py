"""What real clients sent, sent again: every frame and body is accepted and answered, and the model reads it all."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.engines.sim import Script
from tests.support.captures import Player, Scenario, read_scenarios, script_of
from tests.support.spy import Spy

SCENARIOS = read_scenarios()


def as_case(scenario: Scenario) -> Any:  # Any: the type has no public name
    # Codex offers 15 KB of tools in every frame, and the model's context is written down at each turn.
    marks = [pytest.mark.slow] if scenario.name.startswith("codex/") else []
    return pytest.param(scenario, id=scenario.name, marks=marks)


@pytest.mark.parametrize("scenario", [as_case(scenario) for scenario in SCENARIOS])
async def test_a_captured_conversation_goes_the_same_way_here(serve, scenario: Scenario) -> None:
    spy = Spy(script_of(scenario))
    server = await serve(engine=spy, websocket=scenario.offers_websocket)
    player = Player(server, spy)
    await player.play(scenario)
    assert player.turns == sum(one.completes for one in scenario.exchanges)
    assert len(spy.contexts) == sum(one.samples for one in scenario.exchanges)


def test_every_client_is_among_the_captures() -> None:
    clients = {scenario.name.partition("/")[0] for scenario in SCENARIOS}
    assert clients == {
        "codex", "langchain-openai", "litellm-proxy", "litellm-sdk", "livekit-agents", "mastra", "openai-agents-js",
        "openai-agents-python", "openai-node", "openai-python", "opencode", "pi", "pydantic-ai", "vercel-ai",
    }  # fmt: skip


def test_left_out_texts_have_their_real_length() -> None:
    (scenario,) = [one for one in SCENARIOS if one.name == "pi/ws"]
    assert len(scenario.exchanges[0].request["input"][0]["content"]) == 2274


async def test_a_server_that_says_something_else_is_noticed(serve) -> None:
    scenario = an_http_scenario()
    spy = Spy(Script.of("Something else."))
    with pytest.raises(AssertionError, match="Something else"):
        await Player(await serve(engine=spy), spy).play(scenario)


async def test_a_server_whose_model_does_not_read_the_output_is_noticed(serve) -> None:
    scenario = an_http_scenario()
    server = await serve(engine=Spy(script_of(scenario)))
    forgetful = Spy()
    forgetful.contexts = ["user: What is the weather in Paris?"]
    with pytest.raises(AssertionError, match="sunny, 21C"):
        await Player(server, forgetful).play(scenario)


def an_http_scenario() -> Scenario:
    (scenario,) = [one for one in SCENARIOS if one.name == "vercel-ai/http"]
    return scenario
