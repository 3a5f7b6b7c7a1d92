"""What a suspended rollout holds: its buffer, its engine's run and its items, each once; and how many may be held.

Counted are objects by kind, as they are reached from the turn; how many bytes they are, ``bench/suspended.py`` says.
"""

from __future__ import annotations

import gc
import itertools
import types
from collections import Counter
from typing import Any

import msgspec
import pytest
import trio

from respserver.config import Mode
from respserver.engines.base import Batch
from respserver.engines.sim import Script, call, reasoning
from respserver.protocol.chain import Context, Pause
from respserver.protocol.emitter import Emitter
from respserver.protocol.lane import Lane
from respserver.schema.events import Event
from respserver.schema.items import InputItem, OutputItem
from respserver.schema.response import Response
from respserver.state import StoredItem
from respserver.tokens.buffer import TokenBuffer
from respserver.tokens.parse import Delta
from respserver.turn.sampler import Sampler
from tests.support.live import calls_of, output, tool
from tests.support.spy import Spy, SpySequence
from tests.support.talk import Talk, services, settled, spy_of

TOOLS = [tool("first"), tool("second")]
LOOP = Script.of([reasoning("hm"), "look", call("first"), call("second")], on_end="repeat")
SHARED = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType, types.MethodType)
"""What is there however many rollouts there are."""
SHARED_ROOMS = (
    "respserver.turn.services",
    "respserver.turn.routing",
    "respserver.session",
    "respserver.engines",
    "trio",
)


def held(talk: Talk) -> list[Any]:
    """Every object that the one suspended turn of a session holds, and the pause that its lane holds."""
    (turn,) = [each for each in gc.get_objects() if type(each).__qualname__ == "_Turn" and each.port.lane.pause]
    lane: Lane = turn.port.lane
    (waiting,) = [each for each in gc.get_objects() if _is_running(each, "run_turn") and _holds(each, turn)]
    seen: dict[int, Any] = {id(lane.pause): lane.pause}
    found: list[Any] = [waiting, lane.pause]
    for each in found:
        for inner in _held_by(each):
            if id(inner) not in seen and not _is_shared(inner, talk):
                seen[id(inner)] = inner
                found.append(inner)
    return found


def _held_by(each: object) -> list[Any]:
    """What an object holds; structs that the collector does not follow as well."""
    fields = each.__struct_fields__ if isinstance(each, msgspec.Struct) else ()
    return [*gc.get_referents(each), *(getattr(each, name) for name in fields)]


def _is_running(each: object, name: str) -> bool:
    return isinstance(each, types.CoroutineType) and each.cr_code.co_name == name


def _holds(coroutine: types.CoroutineType[Any, Any, Any], turn: object) -> bool:
    return any(each is turn for each in gc.get_referents(coroutine))


def _is_shared(each: object, talk: Talk) -> bool:
    if isinstance(each, (*SHARED, Lane, Spy)) or each is talk.services:
        return True
    return type(each).__module__.startswith(SHARED_ROOMS) and not isinstance(each, SpySequence)


def kinds(found: list[Any]) -> Counter[str]:
    """How many of each class of the project, and of raw JSON."""
    named = [type(each) for each in found if type(each).__module__.startswith(("respserver", "msgspec", "tests"))]
    return Counter(each.__qualname__ for each in named)


def of(found: list[Any], *classes: Any) -> list[Any]:
    return [each for each in found if isinstance(each, classes)]


async def go_on(talk: Talk, done: Any) -> Any:
    """Answer all calls of a pause; the next pause."""
    answers = [output(made, "an answer") for made in calls_of(done["response"])]
    talk.socket.say({"type": "response.append", "input": answers})
    return (await talk.socket.hear_step())[-1]


async def test_a_suspended_rollout_holds_its_buffer_its_run_and_its_items_and_nothing_that_they_were_made_of(
    nursery: trio.Nursery,
) -> None:
    talk = Talk(nursery, services(LOOP, mode=Mode.PROTOTYPE))
    done = await talk.turn(input=[{"role": "user", "content": "go"}], tools=TOOLS)
    for _ in range(3):
        done = await go_on(talk, done)
    await settled()
    found = held(talk)
    for single in (Context, TokenBuffer, SpySequence, Emitter, Response, Pause):
        assert len(of(found, single)) == 1, single
    assert len(of(found, OutputItem)) == 4 * 4
    assert len(of(found, StoredItem)) == 1 + 3 * (4 + 2)
    for made_of in (InputItem, Event, Delta, Batch, Sampler):
        assert of(found, made_of) == []


async def test_each_pause_adds_the_items_since_the_last_one_and_no_other_object(nursery: trio.Nursery) -> None:
    talk = Talk(nursery, services(LOOP, mode=Mode.PROTOTYPE))
    done = await talk.turn(input="go", tools=TOOLS)
    counts = []
    for _ in range(3):
        done = await go_on(talk, done)
        await settled()
        counts.append(kinds(held(talk)))
    outputs = {"Reasoning": 1, "OutputMessage": 1, "OutputText": 1, "FunctionCall": 2, "StoredItem": 6}
    for before, after in itertools.pairwise(counts):
        assert (after - before, before - after) == (outputs, {})


async def test_what_the_client_has_sent_is_held_once_as_json(nursery: trio.Nursery) -> None:
    """Beside it stand the ids of the buffer and of the engine's run, and nothing of the frame that it came in."""
    talk = Talk(nursery, services(Script.of(call("first"), on_end="repeat"), mode=Mode.PROTOTYPE))
    done = await talk.turn(input="go " * 10_000, tools=TOOLS)
    for _ in range(2):
        answer = {**output(calls_of(done["response"])[0]), "output": "went " * 10_000}
        talk.socket.say({"type": "response.append", "input": [answer]})
        done = (await talk.socket.hear_step())[-1]
    await settled()
    long = [each for each in of(held(talk), str, bytes) if len(each) > 20_000]
    assert [each[:1] for each in long] == [b"{"] * 3


@pytest.mark.parametrize("end", ["all go on", "all leave"])
async def test_a_crowd_of_suspended_rollouts_ends_and_leaves_nothing(nursery: trio.Nursery, end: str) -> None:
    parts = services(Script.of(call("first"), "thanks"), mode=Mode.PROTOTYPE, suspended_rollouts=100)
    first = Talk(nursery, parts)
    talks = [first, *(Talk(nursery, parts, beside=first) for _ in range(99))]
    pauses = [await talk.turn(input="go", store=False) for talk in talks]
    assert (parts.suspensions.count, parts.slots.active, spy_of(parts).sequences_open) == (100, 0, 100)
    one_more = Talk(nursery, parts, beside=first)
    refused = await one_more.turn(input="go", store=False)
    assert refused["response"]["error"]["code"] == "too_many_suspended_rollouts"
    assert "100 rollouts of this server" in refused["response"]["error"]["message"]
    if end == "all go on":
        for talk, done in zip(talks, pauses, strict=True):
            talk.socket.say({"type": "response.append", "input": [output(calls_of(done["response"])[0])]})
        for talk in talks:
            assert (await talk.socket.hear_step())[-1]["type"] == "response.completed"
        assert (await one_more.turn(input="go", store=False))["type"] == "response.done"
    for talk in [*talks, one_more]:
        talk.socket.leave()
        await talk.over.wait()
    await settled()
    assert (parts.suspensions.count, parts.slots.active, spy_of(parts).sequences_open) == (0, 0, 0)
