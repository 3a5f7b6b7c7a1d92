"""F08, forks: a create whose parent is another lane's response. When it is bound, what it costs, whom it can hurt."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.config import Mode
from respserver.engines.sim import Script, call, conversation, fault, step
from tests.field_cases.test_chain_state import assert_not_found
from tests.field_cases.test_lanes import answers
from tests.support.lane_wire import LaneWires, begun
from tests.support.live import calls_of, http, output, text_of, tool
from tests.support.spy import Spy

TOOLS = [tool("look")]
SOURCES = [("plan", "fork"), (None, "fork"), ("plan", None)]
"""The lane that holds the parent, and the one that forks."""
PAST = "user: one\nassistant: You said: one\n"
STORED = pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
MODES = pytest.mark.parametrize("mode", list(Mode))


@MODES
@STORED
@pytest.mark.parametrize(("source", "fork"), SOURCES)
async def test_f08_a_fork_and_its_source_go_on_from_one_past_and_know_nothing_of_each_other(
    serve: Any, open_lanes: Any, mode: Mode, store: bool, source: str | None, fork: str | None
) -> None:
    spy = Spy()
    wires: LaneWires = await open_lanes(await serve(engine=spy, mode=mode))
    holder, other = wires.lanes(source, fork)
    parent = await holder.completed(store=store, input="one")
    left = await other.completed(store=store, previous_response_id=parent["id"], input="left")
    right = await holder.completed(store=store, previous_response_id=parent["id"], input="right")
    assert spy.contexts[1:] == [f"{PAST}user: left", f"{PAST}user: right"]
    assert left["previous_response_id"] == right["previous_response_id"] == parent["id"]
    await other.completed(store=store, previous_response_id=left["id"], input="more")
    await holder.completed(store=store, previous_response_id=right["id"], input="more")
    for context, text in zip(spy.contexts[3:], ("left", "right"), strict=True):
        assert context == f"{PAST}user: {text}\nassistant: You said: {text}\nuser: more"


@MODES
async def test_f08_many_lanes_fork_one_unstored_parent_at_once(serve: Any, open_lanes: Any, mode: Mode) -> None:
    spy = Spy()
    wires: LaneWires = await open_lanes(await serve(engine=spy, mode=mode))
    source = wires.lane("plan")
    forks = wires.lanes(*(f"fork-{number}" for number in range(8)))
    parent = await source.completed(store=False, input="one")
    for lane in forks:
        await lane.create(store=False, previous_response_id=parent["id"], input=f"<{lane.lane}>")
    assert await answers(forks) == [f"You said: <{lane.lane}>" for lane in forks]
    assert sorted(spy.contexts[1:]) == sorted(f"{PAST}user: <{lane.lane}>" for lane in forks)
    await source.completed(store=False, previous_response_id=parent["id"], input="two")
    assert spy.contexts[-1] == f"{PAST}user: two"


async def test_f08_a_fork_reads_only_what_is_new(serve: Any, open_lanes: Any) -> None:
    """Its run begins as a copy of the parent's, and its usage says so."""
    spy = Spy()
    wires: LaneWires = await open_lanes(await serve(engine=spy))
    source, fork = wires.lanes("plan", "fork")
    parent = await source.completed(store=False, input="a long past " * 50)
    given = sum(map(len, spy.given))
    response = await fork.completed(store=False, previous_response_id=parent["id"], input="left")
    assert sum(map(len, spy.given)) - given < 20
    usage = response["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] > usage["input_tokens"] - 20


# ---------------------------------------------------------------------------------------- when the parent is bound


@STORED
async def test_f08_a_fork_that_waits_while_its_source_advances_has_lost_an_unstored_parent(
    serve: Any, open_lanes: Any, store: bool
) -> None:
    """One that is stored is loaded."""
    spy = Spy()
    wires: LaneWires = await open_lanes(await serve(engine=spy))
    source, fork = wires.lanes("plan", "fork")
    parent = await source.completed(store=store, input="one")
    spy.hold("busy")
    await fork.create(input="busy")
    await begun([fork])
    await fork.create(store=store, previous_response_id=parent["id"], input="left")
    await source.completed(store=store, previous_response_id=parent["id"], input="right")
    spy.let_go("busy")
    assert await answers([fork]) == ["You said: busy"]
    if store:
        assert await answers([fork]) == ["You said: left"]
        assert spy.contexts[-1] == f"{PAST}user: left"
        return
    error = await fork.frame()
    assert_not_found(error, parent["id"])
    history = [{"role": "user", "content": "one"}, *parent["output"], {"role": "user", "content": "left"}]
    await fork.completed(store=False, previous_response_id=None, input=history)  # the way out that the guide names
    assert spy.contexts[-1] == f"{PAST}user: left"


async def test_f08_a_fork_that_waits_for_one_of_the_sixteen_places_has_bound_nothing_yet(
    serve: Any, open_lanes: Any
) -> None:
    spy = Spy()
    wires: LaneWires = await open_lanes(await serve(engine=spy, limits={"connection_active_turns": 2}))
    source, busy, fork = wires.lanes("plan", "busy", "fork")
    parent = await source.completed(store=False, input="one")
    spy.hold("busy", "right")
    await busy.create(input="busy")
    await source.create(store=False, previous_response_id=parent["id"], input="right")
    await begun([busy, source])
    await fork.create(store=False, previous_response_id=parent["id"], input="left")
    spy.let_go("right")
    assert await answers([source]) == ["You said: right"]
    assert_not_found(await fork.frame(), parent["id"])
    spy.let_go("busy")
    assert await answers([busy]) == ["You said: busy"]


@MODES
async def test_f08_once_a_fork_is_in_progress_its_source_may_advance(serve: Any, open_lanes: Any, mode: Mode) -> None:
    spy = Spy()
    wires: LaneWires = await open_lanes(await serve(engine=spy, mode=mode))
    source, fork = wires.lanes("plan", "fork")
    parent = await source.completed(store=False, input="one")
    spy.hold("left")
    await fork.create(store=False, previous_response_id=parent["id"], input="left")
    await begun([fork])
    right = await source.completed(store=False, previous_response_id=parent["id"], input="right")
    await source.completed(store=False, previous_response_id=right["id"], input="further")
    spy.let_go("left")
    assert await answers([fork]) == ["You said: left"]
    assert f"{PAST}user: left" in spy.contexts


@STORED
@MODES
async def test_f08_a_response_that_still_runs_is_nobodys_parent(
    serve: Any, open_lanes: Any, mode: Mode, store: bool
) -> None:
    spy = Spy()
    spy.hold("one")
    wires: LaneWires = await open_lanes(await serve(engine=spy, mode=mode))
    source, fork = wires.lanes("plan", "fork")
    await source.create(store=store, input="one")
    ((created, _),) = await begun([source])
    running = created["response"]["id"]
    assert_not_found(await fork.refused(previous_response_id=running, input="left"), running)
    spy.let_go("one")
    assert await answers([source]) == ["You said: one"]
    await fork.completed(previous_response_id=running, input="left")


async def test_f08_a_suspended_rollout_can_be_forked_once_it_has_ended(serve: Any, open_lanes: Any) -> None:
    spy = Spy(Script.of(call("look", at=1), "Seen.", on_end="repeat"))
    wires: LaneWires = await open_lanes(await serve(engine=spy, mode=Mode.PROTOTYPE))
    source, fork = wires.lanes("plan", "fork")
    done = (await source.turn(store=False, input="go", tools=TOOLS))[-1]
    rollout = done["response"]["id"]
    error = await fork.refused(previous_response_id=rollout, input="left")
    assert (error["status"], error["error"]["code"]) == (409, "response_suspended")
    await source.append([output(calls_of(done["response"])[0])])
    assert await answers([source]) == ["Seen."]
    await fork.turn(previous_response_id=rollout, input="left")
    assert spy.contexts[-1] == 'user: go\ncall look: {"at":1}\ntool look: ok\nassistant: Seen.\nuser: left'


# ---------------------------------------------------------------------------------------------------- what fails

BREAKS = Script(
    conversations=(
        conversation("Noted.", step("Half of it", fault=fault("It broke."), fault_after_tokens=3), user="one"),
        conversation("Fine."),
    )
)
FAILURES: dict[str, dict[str, Any]] = {
    "refused when it is read": {"input": "next", "temperature": 9},
    "refused when it is bound": {"input": [{"type": "function_call_output", "call_id": "call_zz", "output": "x"}]},
    "failed in the model": {"input": "next"},
}


@STORED
@pytest.mark.parametrize("failure", list(FAILURES))
async def test_f08_a_failed_fork_leaves_the_shared_parent_where_it_is(
    serve: Any, open_lanes: Any, failure: str, store: bool
) -> None:
    wires: LaneWires = await open_lanes(await serve(BREAKS))
    source, fork = wires.lanes("plan", "fork")
    parent = await source.completed(store=store, input="one")
    for _ in range(2):
        frames = await fork.turn(store=store, previous_response_id=parent["id"], **FAILURES[failure])
        assert frames[-1]["type"] == ("response.failed" if "model" in failure else "error")
        if frames[-1]["type"] == "error":
            assert frames[-1]["error"]["code"] != "previous_response_not_found"
    warm = await source.completed(store=store, previous_response_id=parent["id"], input="next", generate=False)
    assert warm["previous_response_id"] == parent["id"]


@STORED
@pytest.mark.parametrize("failure", list(FAILURES))
async def test_f08_a_failed_continuation_on_its_own_lane_takes_the_parent_from_the_forks_too(
    serve: Any, open_lanes: Any, failure: str, store: bool
) -> None:
    """Unless it is stored, and so can be loaded."""
    wires: LaneWires = await open_lanes(await serve(BREAKS))
    source, fork = wires.lanes("plan", "fork")
    parent = await source.completed(store=store, input="one")
    frames = await source.turn(store=store, previous_response_id=parent["id"], **FAILURES[failure])
    assert frames[-1]["type"] == ("response.failed" if "model" in failure else "error")
    following = {"previous_response_id": parent["id"], "input": "left", "generate": False}
    if store:
        await fork.completed(**following)
    else:
        assert_not_found(await fork.refused(**following), parent["id"])
        assert_not_found(await source.refused(**following), parent["id"])


async def test_f08_a_failed_fork_leaves_what_its_own_lane_had(serve: Any, open_lanes: Any) -> None:
    wires: LaneWires = await open_lanes(await serve())
    source, fork = wires.lanes("plan", "fork")
    parent = await source.completed(store=False, input="one")
    own = await fork.completed(store=False, input="mine")
    await fork.refused(store=False, previous_response_id=parent["id"], input=42)
    assert (
        text_of(await fork.completed(store=False, previous_response_id=own["id"], input="go on")) == "You said: go on"
    )


async def test_f08_a_fork_that_ends_well_replaces_what_its_lane_had(serve: Any, open_lanes: Any) -> None:
    wires: LaneWires = await open_lanes(await serve())
    source, fork = wires.lanes("plan", "fork")
    parent = await source.completed(store=False, input="one")
    own = await fork.completed(store=False, input="mine")
    left = await fork.completed(store=False, previous_response_id=parent["id"], input="left")
    assert_not_found(await fork.refused(previous_response_id=own["id"], input="go on"), own["id"])
    await source.completed(store=False, previous_response_id=left["id"], input="a fork of the fork, back home")


# ------------------------------------------------------------------------------------------------ calls and chains


async def test_f08_a_fork_answers_the_calls_of_its_parent_for_itself(serve: Any, open_lanes: Any) -> None:
    spy = Spy(Script.of(call("look", at=1), "Seen.", on_end="repeat"))
    wires: LaneWires = await open_lanes(await serve(engine=spy))
    source, fork, silent = wires.lanes("plan", "fork", "silent")
    parent = await source.completed(store=False, input="go", tools=TOOLS)
    (made,) = calls_of(parent)
    error = await silent.refused(previous_response_id=parent["id"], input="and?")
    assert error["error"]["code"] == "no_tool_output_found"
    for lane, seen in ((fork, "rain"), (source, "sun")):
        await lane.completed(store=False, previous_response_id=parent["id"], input=[output(made, seen)], tools=TOOLS)
        assert spy.contexts[-1].endswith(f'call look: {{"at":1}}\ntool look: {seen}')


@pytest.mark.parametrize("store", [(True, True), (True, False), (False, True)], ids=str)
async def test_f08_what_of_a_fork_can_be_had_elsewhere(serve: Any, open_lanes: Any, store: tuple[bool, bool]) -> None:
    """What was stored, and only with a past that was stored too."""
    server = await serve()
    wires: LaneWires = await open_lanes(server)
    source, fork = wires.lanes("plan", "fork")
    of_parent, of_fork = store
    parent = await source.completed(store=of_parent, input="one")
    left = await fork.completed(store=of_fork, previous_response_id=parent["id"], input="left")
    async with http(server) as client:
        for response, stored in ((parent, of_parent), (left, of_fork)):
            answer = await client.get(f"/responses/{response['id']}")
            assert answer.status_code == (200 if stored else 404)
    elsewhere = (await open_lanes(server)).lane("fork")
    following = {"previous_response_id": left["id"], "input": "go on"}
    if of_parent and of_fork:
        await elsewhere.completed(**following)
    else:
        assert_not_found(await elsewhere.refused(**following), left["id"])


async def test_f08_a_warmed_up_lane_is_the_trunk_of_many_forks(serve: Any, open_lanes: Any) -> None:
    spy = Spy()
    wires: LaneWires = await open_lanes(await serve(engine=spy))
    trunk = wires.lane("trunk")
    forks = wires.lanes("plan", "risk", None)
    warm = await trunk.completed(store=False, generate=False, input="We sail at six.")
    assert spy.contexts == []
    for lane in forks:
        await lane.create(store=False, previous_response_id=warm["id"], input=f"I am {lane.lane}")
    assert await answers(forks) == [f"You said: I am {lane.lane}" for lane in forks]
    assert sorted(spy.contexts) == sorted(f"user: We sail at six.\nuser: I am {lane.lane}" for lane in forks)
