"""The law of replaying: what the server has said is taken back unchanged, and means the same.

A client may chain, or send everything again, with the items' ids or without. In all three ways the model sees the same
context, token by token.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from respserver.config import Config, Limits
from respserver.embed import open_server
from respserver.engines.sim import Script, call, custom, delay, reasoning, refusal, text
from respserver.tools.search import SearchHost
from tests.support.hosts import FakeHost, Library, mcp
from tests.support.live import TERMINALS, Frame, Wire, calls_of, open_wire, output, tool, user
from tests.support.spy import Spy
from tests.support.steering import begun, heard, steer
from tests.support.talk import Talk, services, settled, spy_of

TOOLS = [
    tool("look"),
    {**tool("later"), "async": True},
    {"type": "custom", "name": "exec"},
    {"type": "custom", "name": "watch", "async": True},
    {"type": "namespace", "name": "fs", "tools": [tool("read"), {"type": "custom", "name": "patch"}]},
    mcp(),
    {"type": "web_search"},
]
words = st.text(max_size=12) | st.sampled_from(
    ["hm", "so\n\nwhat", "žluťoučký kůň 🐎", "[input_image]", "<|im_end|>", "{}"]
)
several = st.lists(words, max_size=3).map(tuple)
phases = st.none() | st.sampled_from(["commentary", "final_answer"])
arguments = words | st.just("") | st.dictionaries(words, words, max_size=2)
outputs = st.one_of(
    st.builds(lambda parts, phase: text(*parts, phase=phase), several, phases),
    st.builds(refusal, words),
    st.builds(lambda parts: reasoning(*parts), st.lists(words, min_size=1, max_size=3)),
    st.builds(call, st.sampled_from(["look", "later", "fs.read"]), arguments),
    st.builds(call, st.sampled_from(["srv.look", "srv.fail", "srv.none"]), arguments),
    st.builds(call, st.just("web_search"), arguments | st.builds(lambda query: {"query": query}, words)),
    st.builds(custom, st.sampled_from(["exec", "watch", "fs.patch"]), words),
)
steps = st.lists(outputs, min_size=1, max_size=4)


async def play(wire: Wire, spy: Spy, **fields: Any) -> list[tuple[list[Frame], Frame, list[int]]]:
    """Three turns of a chain: what each was given, its Response, and what the model saw first. Async calls are answered
    a turn late."""
    given_items: list[Frame] = [user("go")]
    turns: list[tuple[list[Frame], Frame, list[int]]] = []
    late: list[Frame] = []
    parent = None
    for _ in range(3):
        runs = len(spy.context_ids)
        response = await wire.completed(input=given_items, previous_response_id=parent, **fields)
        turns.append((given_items, response, spy.context_ids[runs]))
        made = calls_of(response)
        answers = [output(one, f"ok ☂ {one['name']}") for one in made if not one.get("async")]
        given_items = [*late, *answers, user("go on")]
        late = [output(one, "at last") for one in made if one.get("async")]
        parent = response["id"]
    return turns


def resent(turns: list[tuple[list[Frame], Frame, list[int]]], *, with_ids: bool) -> list[Frame]:
    """All items of these turns but the last one's output."""
    items: list[Frame] = []
    for number, (given_items, response, _) in enumerate(turns, 1):
        items += given_items
        if number < len(turns):
            items += response["output"]
    return items if with_ids else [{name: item[name] for name in item if name != "id"} for item in items]


@pytest.mark.slow
@pytest.mark.parametrize("store", [False, True], ids=["unstored", "stored"])
@settings(max_examples=30)
@given(first=steps, second=steps, summary=st.booleans(), shown=st.booleans(), cached=st.booleans())
async def test_what_was_said_is_taken_back_and_means_the_same(
    store: bool, first: Any, second: Any, summary: bool, shown: bool, cached: bool
) -> None:
    spy = Spy(Script.of(first, second, *["the end"] * 3))  # the server's own tools make further runs of a turn
    limits = Limits() if cached else Limits(token_cache_bytes=0)
    fields: dict[str, Any] = {"tools": TOOLS, "store": store, "reasoning": {"summary": "auto"} if summary else None}
    config, hosts = Config(port=0, reasoning_text=shown, limits=limits), [FakeHost(), SearchHost(Library())]
    async with open_server(config, engine=spy, hosts=hosts) as server:
        async with open_wire(server.ws_url) as wire:
            turns = await play(wire, spy, **fields)
        async with open_wire(server.ws_url) as wire:
            for length in (2, 3):
                for with_ids in (True, False):
                    runs = len(spy.context_ids)
                    await wire.completed(input=resent(turns[:length], with_ids=with_ids), **fields)
                    assert spy.context_ids[runs] == turns[length - 1][2]
            if store:
                runs = len(spy.context_ids)
                await wire.completed(input=turns[2][0], previous_response_id=turns[1][1]["id"], **fields)
                assert spy.context_ids[runs] == turns[2][2]


@pytest.mark.parametrize("with_ids", [True, False])
@pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])
@pytest.mark.parametrize("said", [[reasoning("hm", "so")], [text("a", "b")], [refusal("no")], []], ids=str)
async def test_what_was_steered_is_taken_back_and_means_the_same(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, said: list[Any], store: bool, with_ids: bool
) -> None:
    parts = services(Script.of([*said, delay(5), "never said"], "left then", "on then", on_end="repeat"))
    talk = Talk(nursery, parts)
    target = await begun(talk, store=store)
    await settled()
    steer(talk, target, "go left")
    ends = [frame["response"] for frame in await heard(talk, 20) if frame["type"] in TERMINALS]
    last = await talk.turn(input="more", previous_response_id=ends[1]["id"], store=store)
    chained = spy_of(parts).context_ids[-2:]
    given_items = ([user("go")], [user("go left")], [user("more")])
    turns = list(zip(given_items, [*ends, last["response"]], spy_of(parts).context_ids[-3:], strict=True))
    for length in (2, 3):
        await talk.turn(input=resent(turns[:length], with_ids=with_ids), store=store)
        assert spy_of(parts).context_ids[-1] == chained[length - 2]
