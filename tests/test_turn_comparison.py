"""``comparison_response_id``: how many of another response's tokens a turn shares, and why no more of them."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.config import Mode, RouteConfig
from respserver.engines.sim import Script, call
from respserver.turn.comparison import shared_prefix
from tests.support.live import Wire, output, post, text_of, tool, user

Json = dict[str, Any]
TOOLS = [tool("look")]


def compared(response_id: str, **fields: Any) -> Json:
    return {"prompt_cache_options": {"comparison_response_id": response_id}, **fields}


@pytest.fixture
async def server(serve: Any) -> Any:
    return await serve(Script.of("Answer.", on_end="repeat"))


ids = st.lists(st.integers(0, 2), max_size=40)


@given(ids, ids, ids)
def test_a_shared_prefix_is_found_where_a_loop_would_find_it(
    start: list[int], one: list[int], other: list[int]
) -> None:
    first, second = array("I", start + one), array("I", start + other)
    slow = 0
    while slow < min(len(first), len(second)) and first[slow] == second[slow]:
        slow += 1
    assert shared_prefix(first, second) == shared_prefix(second, first) == slow


@pytest.mark.parametrize("store", [True, False])
async def test_a_continuation_hits_its_parent_whole(server: Any, connect: Any, store: bool) -> None:
    wire: Wire = await connect(server)
    first = await wire.completed(input="hi", store=store)
    assert "prompt_cache_diagnostics" not in first
    *begun, last = await wire.turn(**compared(first["id"], input="on", previous_response_id=first["id"], store=store))
    assert last["response"]["prompt_cache_diagnostics"] == {"type": "cache_hit"}
    assert last["response"]["prompt_cache_options"]["comparison_response_id"] == first["id"]
    assert not any("prompt_cache_diagnostics" in event["response"] for event in begun if "response" in event)


async def test_a_resent_history_hits_a_response_that_it_begins_with(server: Any, connect: Any) -> None:
    wire: Wire = await connect(server)
    first = await wire.completed(input="hi", store=False)
    history = [user("hi"), *first["output"], user("on")]
    again = await wire.completed(**compared(first["id"], input=history))
    assert again["prompt_cache_diagnostics"] == {"type": "cache_hit"}
    over_http = await post(server, **compared(again["id"], input=history))
    assert over_http.json()["prompt_cache_diagnostics"] == {"type": "cache_hit"}  # all of it was there


async def test_another_input_misses_where_it_begins_to_differ(server: Any, connect: Any) -> None:
    wire: Wire = await connect(server)
    same = [user("the same beginning"), user("and the same middle")]
    first = await wire.completed(input=[*same, user("one end")], instructions="Be brief.")
    warm = await wire.completed(input=same, instructions="Be brief.", generate=False)
    shared = warm["usage"]["input_tokens"]
    other = await wire.completed(
        **compared(first["id"], input=[*same, user("quite another")], instructions="Be brief.")
    )
    told = other["prompt_cache_diagnostics"]
    assert (told["type"], told["reason"]) == ("cache_miss", "input_changed")
    assert shared <= told["comparison_reusable_tokens"] <= shared + 3  # a frame's own beginning is alike too
    assert told["cache_missed_tokens"] + told["comparison_reusable_tokens"] == other["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"tools": TOOLS}, "tools_changed"),
        ({"instructions": "Be long."}, "input_changed"),
        ({"instructions": "Be long.", "model": "another"}, "model_changed"),
    ],
    ids=str,
)
@pytest.mark.parametrize("store", [True, False])
async def test_another_head_shares_nothing(server: Any, connect: Any, store: bool, changed: Json, reason: str) -> None:
    wire: Wire = await connect(server)
    first = await wire.completed(input="hi", store=store)
    other = await wire.completed(**compared(first["id"], input="on", previous_response_id=first["id"], **changed))
    assert other["prompt_cache_diagnostics"] == {
        "type": "cache_miss",
        "reason": reason,
        "cache_missed_tokens": other["usage"]["input_tokens"],
        "comparison_reusable_tokens": 0,
    }
    assert other["usage"]["input_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize(
    "changed",
    [{"service_tier": "flex"}, {"text": {"verbosity": "low"}}, {"reasoning": {"effort": "low"}}, {"model": "another"}],
    ids=str,
)
async def test_fields_that_change_no_token_are_no_reason(server: Any, connect: Any, changed: Json) -> None:
    wire: Wire = await connect(server)
    first = await wire.completed(input="hi")
    other = await wire.completed(**compared(first["id"], input="on", previous_response_id=first["id"], **changed))
    assert other["prompt_cache_diagnostics"] == {"type": "cache_hit"}
    assert other["usage"]["input_tokens_details"]["cached_tokens"] > 0


async def test_a_response_that_is_not_known_here_is_told_as_not_found(serve: Any, server: Any, connect: Any) -> None:
    wire, stranger = await connect(server), await connect(server)
    first = await wire.completed(input="hi", store=False)
    for response_id in (first["id"], "resp_unknown"):
        told = await stranger.completed(**compared(response_id, input="hi"))
        assert told["prompt_cache_diagnostics"] == {"type": "comparison_response_not_found"}
        assert text_of(told) == "Answer."


async def test_a_response_of_another_tenant_is_not_found(serve: Any, connect: Any) -> None:
    server = await serve(Script.of("Answer.", on_end="repeat"), api_key=("mine", "yours"))
    mine: Wire = await connect(server, headers={"Authorization": "Bearer mine"})
    yours: Wire = await connect(server, headers={"Authorization": "Bearer yours"})
    first = await mine.completed(input="hi")
    told = await yours.completed(**compared(first["id"], input="hi"))
    assert told["prompt_cache_diagnostics"] == {"type": "comparison_response_not_found"}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({}, None),
        ({"tools": TOOLS}, "tools_changed"),
        ({"instructions": "Be long."}, "input_changed"),
        ({"instructions": "Be long.", "model": "another"}, "model_changed"),
    ],
    ids=str,
)
async def test_a_stored_response_compares_alike_from_elsewhere(server: Any, changed: Json, reason: str | None) -> None:
    first = (await post(server, input="hi", instructions="What the last turn says counts.")).json()
    later = (await post(server, input="on", previous_response_id=first["id"])).json()
    history = [user("hi"), *first["output"], user("on"), *later["output"]]
    told = (await post(server, **compared(later["id"], input=history, **changed))).json()["prompt_cache_diagnostics"]
    assert (told["type"], told.get("reason")) == ("cache_miss" if reason else "cache_hit", reason)


async def test_a_rollout_is_compared_as_it_begins(serve: Any, connect: Any) -> None:
    server = await serve(Script.of(call("look"), "Done."), mode=Mode.PROTOTYPE)
    wire: Wire = await connect(server)
    first = await wire.completed(input="hi", generate=False)
    pause = (await wire.turn(**compared(first["id"], input=[user("hi"), user("on"), user("now")], tools=TOOLS)))[-1]
    began = pause["response"]["usage"]["input_tokens"]
    await wire.append([output(pause["response"]["output"][-1])])
    told = (await wire.frames())[-1]["response"]["prompt_cache_diagnostics"]
    assert told["cache_missed_tokens"] == began


async def test_a_context_that_was_cut_is_not_compared(serve: Any, connect: Any) -> None:
    server = await serve(Script.of("Answer.", on_end="repeat"), routes=(RouteConfig(pattern="*", context_window=200),))
    wire: Wire = await connect(server)
    first = await wire.completed(input="hi")
    history = [user("one " * 80), user("two " * 80), user("three " * 80), user("four")]
    cut = await wire.completed(**compared(first["id"], input=history, truncation="auto"))
    assert cut["prompt_cache_diagnostics"] == {"type": "unavailable"}


async def test_a_warm_up_is_compared_too_and_a_stored_answer_shows_it(server: Any, connect: Any) -> None:
    wire: Wire = await connect(server)
    first = await wire.completed(input="hi")
    warm = await wire.completed(**compared(first["id"], input="on", previous_response_id=first["id"], generate=False))
    assert warm["prompt_cache_diagnostics"] == {"type": "cache_hit"}
