"""What real clients sent, sent again: every frame and body is accepted and answered, and the model reads it all."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from respserver.engines.sim import Script
from tests.support.capture_player import Player
from tests.support.captures import Scenario, read_scenarios, script_of
from tests.support.lane_wire import LaneWires
from tests.support.spy import Spy

SCENARIOS = read_scenarios()
ON_SOCKETS = [one for one in SCENARIOS if one.lanes == {None}]
"""Scenarios whose frames can be moved to a named lane."""
CITIES = (
    "Lyon", "Brest", "Turin", "Ghent", "Porto", "Malmo", "Basel", "Graz", "Gdansk", "Split", "Cork", "Leeds", "Oulu",
    "Sibiu", "Bruges", "Trieste",
)  # fmt: skip
BESIDE = [one for one in SCENARIOS if one.fits_on_a_lane and one.about(CITIES[0]) != one]
"""Scenarios that can share a socket: each a conversation about a city, from which one sees whose it is."""

NOT_COMPLETED = {
    "interrupt: user interrupts a stream": "the user does not want it any more, and the client hangs up",
    "previous_response_not_found on the 3rd request": "the server has lost the parent; the client sends all again",
    "websocket_connection_limit_reached on the 3rd request": "the socket is too old; the client opens another",
    "426 on upgrade, HTTP fallback": "the server has no WebSocket; the client goes on over HTTP",
}
"""Codex' scenarios with a request that comes to no end, and why: all that follows in them completes."""

STAND_INS = {
    "codex/ws-scenarios: tool_search: client-executed tool search": ["tool_search_call"],
    "codex/ws-scenarios: compaction: provider named OpenAI, compaction_trigger item": ["compaction"],
}
"""Items that only the captured server makes: its call is sent along with the output, its sealed content is left out.
As they were sent they are refused on purpose: no such call was made here, and what others have sealed is not opened."""


def as_case(scenario: Scenario) -> Any:  # Any: the type has no public name
    # Codex offers 15 KB of tools in every frame, and the model's context is written down at each turn.
    marks = [pytest.mark.slow] if scenario.name.startswith("codex/") else []
    return pytest.param(scenario, id=scenario.name, marks=marks)


@pytest.mark.parametrize("scenario", [as_case(scenario) for scenario in SCENARIOS])
async def test_a_captured_conversation_goes_the_same_way_here(serve, scenario: Scenario) -> None:
    await play(serve, scenario)


@pytest.mark.parametrize("scenario", [as_case(scenario) for scenario in ON_SOCKETS])
async def test_a_captured_conversation_goes_the_same_way_on_a_named_lane(serve, scenario: Scenario) -> None:
    await play(serve, scenario.on_lane("lane-7"))


async def play(serve: Any, scenario: Scenario) -> None:
    spy = Spy(script_of(scenario))
    server = await serve(engine=spy, websocket=scenario.offers_websocket)
    player = Player(server, spy)
    await player.play(scenario)
    assert player.turns == sum(one.completes for one in scenario.exchanges)
    assert len(spy.contexts) == sum(one.samples for one in scenario.exchanges)
    assert player.stand_ins == STAND_INS.get(scenario.name, [])


class Assembly(Spy):
    """A model that says nothing until so many conversations have come to it."""

    def __init__(self, script: Script, expected: int) -> None:
        super().__init__(script)
        self._missing = expected
        self._complete = trio.Event()

    async def pass_gate(self, ids: list[int]) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._complete.set()
        await self._complete.wait()


@pytest.mark.slow
async def test_captured_conversations_go_on_side_by_side_on_lanes_of_one_socket(serve, connect) -> None:
    told = {city: one.about(city) for city, one in zip(CITIES, BESIDE, strict=False)}
    conversations = tuple(each for one in told.values() for each in script_of(one).conversations)
    spy = Assembly(Script(conversations=conversations), len(told))
    server = await serve(engine=spy)
    wires = LaneWires(await connect(server))
    players = {city: Player(server, spy, wires) for city in told}
    async with trio.open_nursery() as nursery:
        for city, scenario in told.items():
            nursery.start_soon(players[city].play, scenario.on_lane(f"lane-{city}"))
    for city, scenario in told.items():
        assert players[city].turns == len(scenario.exchanges)
        read = [context for context in spy.contexts if city in context]
        assert len(read) == sum(one.samples for one in scenario.exchanges)
        assert not any(other in context for context in read for other in CITIES if other != city)


def test_every_client_is_among_the_captures() -> None:
    clients = {scenario.name.partition("/")[0] for scenario in SCENARIOS}
    assert clients == {
        "codex", "langchain-openai", "litellm-proxy", "litellm-sdk", "livekit-agents", "mastra", "openai-agents-js",
        "openai-agents-python", "openai-node", "openai-python", "opencode", "pi", "pydantic-ai", "vercel-ai",
    }  # fmt: skip


def test_every_client_with_a_socket_is_among_those_that_share_one() -> None:
    def clients(scenarios: list[Scenario]) -> set[str]:
        return {scenario.name.partition("/")[0] for scenario in scenarios if scenario.lanes}

    # Codex' conversations are about no city, and opencode asks for a title over HTTP first.
    assert clients(BESIDE) == clients(SCENARIOS) - {"codex", "opencode"}
    assert 10 < len(BESIDE) <= len(CITIES)


def test_every_request_comes_to_its_end_but_those_for_a_reason() -> None:
    unfinished = {
        scenario.name.removeprefix("codex/ws-scenarios: ")
        for scenario in SCENARIOS
        for exchange in scenario.exchanges
        if not exchange.completes and not exchange.get
    }
    assert unfinished == set(NOT_COMPLETED)
    for scenario in SCENARIOS:
        assert scenario.exchanges[-1].completes or "interrupt" in scenario.name


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
    with pytest.raises(AssertionError, match="sunny, 21C"):
        await Player(server, forgetful).play(scenario)


def an_http_scenario() -> Scenario:
    (scenario,) = [one for one in SCENARIOS if one.name == "vercel-ai/http"]
    return scenario
