"""The rendered-token cache: the same ids for less work, apart by tenant, bounded, and true to what was sampled."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Ids
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from respserver.config import Config, Limits
from respserver.embed import make_server
from respserver.engines.base import Batch, SamplingParams
from respserver.engines.sim import Script, call
from respserver.metrics import Metrics
from respserver.schema.input import read_input
from respserver.schema.tools import NO_TOOLS, parse_tools
from respserver.services import build_services, bundled_template
from respserver.tokens.special import Special
from respserver.turn.rendering import render_head, render_items
from respserver.turn.tokencache import ENTRY_BYTES, TokenCache, head_key, item_key, scope_of, whole_items
from tests.support.live import Frame, calls_of, http, output, text_of, tool, user
from tests.support.spy import Spy
from tests.support.talk import Talk
from tests.test_tokens_render import items as any_item

TOOLS = [tool("first")]
TEMPLATE = bundled_template()


def reply(response: Frame, *, ids: bool) -> list[Frame]:
    """A response's items as a client sends them back, with or without their ids."""
    return [
        item if ids else {k: v for k, v in item.items() if k not in ("id", "status")} for item in response["output"]
    ]


@pytest.mark.parametrize("ids", [True, False])
async def test_a_client_that_resends_everything_pays_for_what_is_new_alone(serve: Any, ids: bool) -> None:
    spy = Spy(Script.of(call("first", pier=4), "low at six", "bye"))
    server = await serve(engine=spy)
    metrics = server.metrics
    history: list[Frame] = [user("tide at pier four, please " * 40)]
    tokenised = []
    async with http(server) as client:
        response: Frame = {"output": []}
        for new in (None, "06:00", "thanks"):
            if new is not None:
                calls = calls_of(response)
                history += [*reply(response, ids=ids), output(calls[0], new) if calls else user(new)]
            before = metrics.bytes_tokenised
            answer = await client.post("/responses", json={"model": "sim", "input": history, "tools": TOOLS})
            response = answer.json()
            tokenised.append(metrics.bytes_tokenised - before)
    assert text_of(response) == "bye"
    assert tokenised[0] > 1000
    assert tokenised[1:] == [len("toolfirst06:00"), len("userthanks")]
    assert spy.contexts[2].endswith("tool first: 06:00\nassistant: low at six\nuser: thanks")


async def test_switched_off_it_keeps_nothing(serve: Any) -> None:
    server = await serve(limits={"token_cache_bytes": 0})
    async with http(server) as client:
        for _ in range(2):
            before = server.metrics.bytes_tokenised
            await client.post("/responses", json={"model": "sim", "input": "again", "tools": TOOLS})
            assert server.metrics.bytes_tokenised - before > 100
    assert server.metrics.heads_rendered == 2
    assert (server.metrics.token_cache_hits, server.metrics.token_cache_misses) == (0, 0)


class Speller(Spy):
    """A model that samples its text letter by letter, as no tokenizer would encode it."""

    async def open(self) -> Any:
        return Spelling(await super().open())


class Spelling:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.context: list[int] = []
        self._in_role = False

    async def extend(self, ids: Ids[int]) -> None:
        self.context += ids
        await self._inner.extend(ids)

    async def next(self, params: SamplingParams) -> Batch:
        batch = await self._inner.next(params)
        ids = [letter for token in batch.ids for letter in self._letters(token)]
        self.context += ids
        return Batch(ids=ids, finished=batch.finished)

    def _letters(self, token: int) -> list[int]:
        if token < len(Special):
            self._in_role = token == Special.START
        if token < len(Special) or self._in_role:
            return [token]  # marks and roles as the embedded model beneath knows them
        return [TEMPLATE.token_bytes.index(bytes([letter])) for letter in TEMPLATE.token_bytes[token]]

    async def discard(self, count: int) -> None:
        raise AssertionError("nothing is cut in this test")

    async def aclose(self) -> None:
        await self._inner.aclose()


@pytest.mark.parametrize("ids", [True, False])
async def test_what_the_model_sampled_is_found_again_as_it_was_sampled(ids: bool) -> None:
    """The context of a resent history is the chain's, token by token."""
    contexts: list[list[int]] = []

    class Recorder(Speller):
        async def open(self) -> Any:
            sequence = await super().open()
            contexts.append(sequence.context)
            return sequence

    server = make_server(Config(port=0), engine=Recorder(Script.of(call("first"), "several words here", "end")))
    async with trio.open_nursery() as nursery:
        talk = Talk(nursery, server.services)
        one = (await talk.turn(input="go", tools=TOOLS))["response"]
        (made,) = calls_of(one)
        two = (await talk.turn(input=[output(made)], tools=TOOLS, previous_response_id=one["id"]))["response"]
        await talk.turn(input="and?", tools=TOOLS, previous_response_id=two["id"])
        history = [user("go"), *reply(one, ids=ids), output(made), *reply(two, ids=ids), user("and?")]
        await talk.turn(input=history, tools=TOOLS)
        nursery.cancel_scope.cancel()
    chained, resent = contexts
    assert chained == resent
    letters = TEMPLATE.token_bytes.index(b"w")
    assert letters in resent


@given(st.lists(any_item, max_size=5), st.integers(0, 2))
def test_cached_or_not_the_ids_are_the_same(given_items: list[Any], repeats: int) -> None:
    parts = build_services(Config(limits=Limits(inline_tokenize_bytes=1 << 30)))
    plain = [token for item in given_items for token in TEMPLATE.tokenise(TEMPLATE.item(item))]

    async def render() -> array[int]:
        return await render_items(TEMPLATE, "t", given_items, parts)

    for _ in range(repeats + 1):
        assert trio.run(render).tolist() == plain


async def test_tenants_do_not_meet() -> None:
    parts = build_services(Config())
    metrics = parts.metrics
    given_items = read_input(b'"the same words"')
    tools = parse_tools(b'[{"type":"function","name":"f"}]')
    for tenant, hits, misses in [("one", 0, 2), ("two", 0, 4), ("one", 2, 4)]:
        await render_items(TEMPLATE, tenant, given_items, parts)
        await render_head(TEMPLATE, tenant, "Be kind.", tools, parts)
        assert (metrics.token_cache_hits, metrics.token_cache_misses) == (hits, misses)
    assert metrics.heads_rendered == 2


def test_the_bound_is_kept_and_the_least_lately_used_goes_first() -> None:
    metrics = Metrics()
    cache = TokenCache(3 * (ENTRY_BYTES + 40), metrics)
    for name in (b"a", b"b", b"c"):
        cache.put(name, array("I", range(10)))
    assert cache.get(b"a") is not None
    cache.put(b"d", array("I", range(10)))
    assert [cache.get(name) is not None for name in (b"a", b"b", b"c", b"d")] == [True, False, True, True]
    assert (metrics.token_cache_hits, metrics.token_cache_misses) == (4, 1)
    assert cache.bytes == 3 * (ENTRY_BYTES + 40)


def test_what_is_there_stays_unless_the_model_has_said_it_anew() -> None:
    cache = TokenCache(10_000, Metrics())
    cache.put(b"a", array("I", [1, 2, 3]))
    full = cache.bytes
    cache.put(b"a", array("I", [4]))
    assert (list(cache.get(b"a") or ()), cache.bytes) == ([1, 2, 3], full)
    cache.put(b"a", array("I", [4]), replaces=True)
    assert (list(cache.get(b"a") or ()), cache.bytes) == ([4], full - 2 * 4)


def test_an_entry_that_is_larger_than_the_bound_is_not_kept_and_drives_nobody_out() -> None:
    cache = TokenCache(ENTRY_BYTES + 40, Metrics())
    cache.put(b"a", array("I", range(10)))
    cache.put(b"huge", array("I", range(11)))
    assert (cache.get(b"huge"), cache.bytes) == (None, ENTRY_BYTES + 40)
    assert cache.get(b"a") is not None


def test_keys_tell_everything_apart_that_is_not_the_same() -> None:
    tools = parse_tools(b'[{"type":"function","name":"f"}]')
    heads = {
        head_key(scope_of("t", "fp"), "I", tools),
        head_key(scope_of("u", "fp"), "I", tools),
        head_key(scope_of("t", "other"), "I", tools),
        head_key(scope_of("t", "fp"), "J", tools),
        head_key(scope_of("t", "fp"), None, tools),
        head_key(scope_of("t", "fp"), "", tools),
        head_key(scope_of("t", "fp"), "I", NO_TOOLS),
        head_key(scope_of("", "tfp"), "I", tools),
    }
    assert len(heads) == 8
    items = {
        item_key("s", [Special.START, "ab", Special.END]),
        item_key("s", [Special.START, "a", "b", Special.END]),
        item_key("s", [Special.START, "ab<2>"]),
        item_key("s", [Special.START, "ab", Special.SEP]),
        item_key("z", [Special.START, "ab", Special.END]),
    }
    assert len(items) == 5


def test_sampled_ids_are_cut_where_items_begin() -> None:
    assert whole_items(array("I", [9, 0, 5, 2, 0, 6, 2]), 0) == [array("I", [0, 5, 2]), array("I", [0, 6, 2])]
    assert whole_items(array("I"), 0) == []
