"""Metadata of a terminal Response: what of it is ours, that no client can say it, and that it may be sent back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.config import TermsClassifierConfig
from respserver.embed import RunningServer
from respserver.engines.sim import Script, fault, step
from respserver.ledger.base import Timings
from respserver.schema.request import MAX_METADATA_VALUE, TIMINGS_KEY, VERDICT_KEY
from respserver.turn.response import with_timings, with_verdict
from respserver.turn.safety import Verdict
from respserver.turn.safety.base import MAX_CATEGORIES
from tests.support.live import Wire, post, stream

SIXTEEN = {f"key {number}": "" for number in range(16)}
FORGED = {VERDICT_KEY: "flag forged", TIMINGS_KEY: "forged"}
LONG = [f"{'c' * 62}{number:02d}" for number in range(30)]
"""Categories that together are longer than a metadata value."""

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,63}", fullmatch=True)


@pytest.fixture
async def screened(serve: Any, tmp_path: Path) -> Callable[..., Awaitable[RunningServer]]:
    """Start a server that flags ``word0``, ``word1`` and so on, each as a category of its own."""
    terms = tmp_path / "terms.txt"
    terms.write_text("\n".join(f"flag {name}: word{number}" for number, name in enumerate(LONG)))

    async def start(script: Script | None = None, **options: Any) -> RunningServer:
        script = script or Script.of("Done.", on_end="repeat")
        classifiers = (TermsClassifierConfig(file=str(terms)),)
        server: RunningServer = await serve(script, classifiers=classifiers, **options)
        return server

    return start


@given(st.lists(names, max_size=MAX_CATEGORIES))
def test_a_verdict_fits_into_a_value_and_is_cut_between_categories(categories: list[str]) -> None:
    whole = Verdict("flag", tuple(categories)).encode()
    told = with_verdict({}, whole)[VERDICT_KEY]
    assert len(told) <= MAX_METADATA_VALUE
    if len(whole) <= MAX_METADATA_VALUE:
        assert told == whole
    else:
        assert whole.startswith(told.removesuffix("..."))
        assert len(told) > MAX_METADATA_VALUE - 65 - len(" ...")


def test_no_verdict_is_no_pair() -> None:
    assert with_verdict({"mine": "1"}, "") == {"mine": "1"}


def test_a_verdict_has_a_place_of_its_own_and_the_times_give_way_to_it() -> None:
    flagged = with_verdict(SIXTEEN, "flag spam")
    assert flagged == {**SIXTEEN, VERDICT_KEY: "flag spam"}
    assert with_timings(flagged, Timings(total=1.0)) == flagged


@pytest.mark.parametrize("transport", ["websocket", "json", "sse"])
async def test_what_a_client_says_in_our_name_is_not_shown(screened: Any, connect: Any, transport: str) -> None:
    server = await screened()
    fields = {"input": "hi", "metadata": {"mine": "1", **FORGED}}
    if transport == "json":
        events = [{"response": (await post(server, **fields)).json()}]
    elif transport == "sse":
        events = await stream(server, **fields)
    else:
        wire: Wire = await connect(server)
        events = await wire.turn(**fields)
    shown = [event["response"]["metadata"] for event in events if "response" in event]
    assert shown == [{"mine": "1"}] * len(shown)


async def test_the_metadata_of_a_response_may_be_sent_back_as_it_came(screened: Any, connect: Any) -> None:
    wire: Wire = await connect(await screened())
    flagged = await wire.completed(input=" ".join(f"word{number}" for number in range(30)), metadata=SIXTEEN)
    verdict = flagged["metadata"][VERDICT_KEY]
    assert flagged["metadata"] == {**SIXTEEN, VERDICT_KEY: verdict}
    assert verdict.startswith(f"flag {LONG[0]} ")
    assert len(verdict) <= MAX_METADATA_VALUE
    clean = await wire.completed(input="hi", metadata=flagged["metadata"])
    assert clean["metadata"] == SIXTEEN
    after = await wire.completed(input="hi", metadata=flagged["metadata"], previous_response_id=flagged["id"])
    assert after["metadata"] == flagged["metadata"]


async def test_only_a_clients_own_pairs_are_counted(screened: Any, connect: Any) -> None:
    wire: Wire = await connect(await screened(debug_timings=True))
    assert (await wire.completed(input="hi", metadata={**SIXTEEN, **FORGED}))["metadata"] == SIXTEEN
    error = await wire.refused(input="hi", metadata={**SIXTEEN, "one more": ""})
    assert (error["error"]["code"], error["error"]["param"]) == ("object_above_max_properties", "metadata")


async def test_a_flagged_turn_that_fails_tells_of_the_flag_too(screened: Any, connect: Any) -> None:
    server = await screened(Script.of(step("word " * 20, fault=fault("broke"), fault_after_tokens=4)))
    wire: Wire = await connect(server)
    *before, last = await wire.turn(input="word0", metadata={"mine": "1"})
    assert last["type"] == "response.failed"
    assert last["response"]["metadata"] == {"mine": "1", VERDICT_KEY: f"flag {LONG[0]}"}
    assert all(event["response"]["metadata"] == {"mine": "1"} for event in before if "response" in event)
