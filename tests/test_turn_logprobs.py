"""``top_logprobs`` and ``include: message.output_text.logprobs``: what is asked for is told, on every road."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.engines.base import Batch, SamplingParams
from respserver.engines.sim import Script, call, fault, reasoning, refusal, step, text
from respserver.engines.sim.engine import Sim, SimSequence
from respserver.services import bundled_template
from respserver.tokens.logprobs import TokenLogprob
from tests.support.live import Frame, Wire, http, post, stream, tool
from tests.support.sdk import check_event, check_response

WAVE = "one wave \U0001f30a, and another"
RICH = Script.of([reasoning("hm"), text(WAVE, "Part two."), call("look", pier=4)], on_end="repeat")
INCLUDE = ["message.output_text.logprobs"]
TOOLS = [tool("look")]
ASKED: list[tuple[dict[str, Any], int]] = [
    ({"include": INCLUDE}, 0),
    ({"top_logprobs": 2}, 1),  # the model is certain: there is one token, and no other was possible
    ({"include": INCLUDE, "top_logprobs": 20}, 1),
]


async def frames_of(server: Any, connect: Any, transport: str, **fields: Any) -> list[Frame]:
    if transport == "sse":
        return await stream(server, input="go", tools=TOOLS, **fields)
    wire: Wire = await connect(server)
    return await wire.turn(input="go", tools=TOOLS, **fields)


def of_type(frames: list[Frame], kind: str) -> list[Frame]:
    return [frame for frame in frames if frame["type"] == kind]


def check_logprobs(part: Frame, alternatives: int) -> None:
    """A final part's list: every token of its text, in order, each certain."""
    assert b"".join(bytes(one["bytes"]) for one in part["logprobs"]).decode() == part["text"]
    for one in part["logprobs"]:
        assert one["logprob"] == 0.0
        same = {"token": one["token"], "bytes": one["bytes"], "logprob": 0.0}
        assert one["top_logprobs"] == [same][:alternatives]


def without_bytes(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_bytes(inner) for key, inner in value.items() if key != "bytes"}
    return [without_bytes(inner) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("transport", ["websocket", "sse"])
@pytest.mark.parametrize(("fields", "alternatives"), ASKED)
async def test_deltas_carry_their_tokens_and_done_events_and_parts_all_of_them(
    serve: Any, connect: Any, transport: str, fields: dict[str, Any], alternatives: int
) -> None:
    frames = await frames_of(await serve(RICH), connect, transport, **fields)
    for frame in frames:
        check_event(frame)
    message = frames[-1]["response"]["output"][1]
    for index, part in enumerate(message["content"]):
        check_logprobs(part, alternatives)
        deltas = [one for one in of_type(frames, "response.output_text.delta") if one["content_index"] == index]
        assert all(delta["logprobs"] for delta in deltas)
        told = [logprob for delta in deltas for logprob in delta["logprobs"]]
        done = of_type(frames, "response.output_text.done")[index]
        assert told == done["logprobs"] == without_bytes(part["logprobs"])
        assert of_type(frames, "response.content_part.done")[index]["part"] == part
        assert of_type(frames, "response.content_part.added")[index]["part"]["logprobs"] == []
    assert frames[-1]["response"]["top_logprobs"] == fields.get("top_logprobs", 0)


@pytest.mark.parametrize(("fields", "alternatives"), ASKED)
async def test_a_json_answer_and_a_stored_response_have_them(
    serve: Any, connect: Any, fields: dict[str, Any], alternatives: int
) -> None:
    server = await serve(RICH)
    answer = (await post(server, input="go", tools=TOOLS, **fields)).json()
    check_response(answer)
    for part in answer["output"][1]["content"]:
        check_logprobs(part, alternatives)
    async with http(server) as client:
        stored = (await client.get(f"/responses/{answer['id']}")).json()
    assert stored["output"] == answer["output"]


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_without_the_request_every_list_is_empty(serve: Any, connect: Any, transport: str) -> None:
    frames = await frames_of(await serve(RICH), connect, transport, top_logprobs=0)
    lists = [frame["logprobs"] for frame in frames if "logprobs" in frame]
    lists += [part["logprobs"] for part in frames[-1]["response"]["output"][1]["content"]]
    assert lists
    assert not any(lists)


async def test_a_refusal_has_none(serve: Any, connect: Any) -> None:
    frames = await frames_of(await serve(Script.of(refusal("No."))), connect, "websocket", top_logprobs=3)
    assert "logprobs" not in str(frames).replace("top_logprobs", "")
    for frame in frames:
        check_event(frame)


@pytest.mark.parametrize("limit", range(16, 24))
async def test_a_text_that_a_limit_cuts_has_those_of_what_is_left(serve: Any, connect: Any, limit: int) -> None:
    script = Script.of(step("\U0001f30a " * 20, tps=0), on_end="repeat")
    frames = await frames_of(await serve(script), connect, "websocket", max_output_tokens=limit, include=INCLUDE)
    (part,) = frames[-1]["response"]["output"][0]["content"]
    shown = b"".join(bytes(one["bytes"]) for one in part["logprobs"])
    assert shown.decode("utf-8", "replace") == part["text"]
    assert frames[-1]["type"] == "response.incomplete"


async def test_a_single_call_ends_a_turn_with_log_probabilities_too(serve: Any, connect: Any) -> None:
    script = Script.of([text("a b"), call("look", pier=4), call("look", pier=5)])
    wire: Wire = await connect(await serve(script))
    response = await wire.completed(input="go", tools=TOOLS, top_logprobs=1, parallel_tool_calls=False)
    check_logprobs(response["output"][0]["content"][0], 1)
    assert len(response["output"]) == 2


async def test_a_message_with_log_probabilities_is_taken_back(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(Script.of("first", "second")))
    first = await wire.completed(input="go", top_logprobs=1, store=False)
    history = [{"role": "user", "content": "go"}, *first["output"], {"role": "user", "content": "on"}]
    again = await wire.completed(input=history)
    chained: Wire = await connect(await serve(Script.of("first", "second")))
    one = await chained.completed(input="go")
    two = await chained.completed(input="on", previous_response_id=one["id"])
    assert again["usage"]["input_tokens"] == two["usage"]["input_tokens"]


class Guessing(Sim):
    """A model that is not certain, or an engine that breaks its word."""

    def __init__(self, script: Script, kind: str) -> None:
        super().__init__(bundled_template(), script=script)
        self.kind = kind
        self.gives_logprobs = kind != "cannot"
        self.asked: list[int | None] = []

    async def open(self) -> GuessingSequence:
        return GuessingSequence(self, await super().open())


class GuessingSequence:
    def __init__(self, engine: Guessing, inner: SimSequence) -> None:
        self._engine, self._inner = engine, inner
        self.extend, self.discard, self.fork, self.aclose = inner.extend, inner.discard, inner.fork, inner.aclose

    async def next(self, params: SamplingParams) -> Batch:
        self._engine.asked.append(params.top_logprobs)
        batch = await self._inner.next(params)
        guesses = [TokenLogprob(-0.5, ((token, -0.5), (60, -1.5))) for token in batch.ids]
        told = {"guesses": guesses, "few": guesses[1:], "none": None, "cannot": None}[self._engine.kind]
        return Batch(ids=batch.ids, finished=batch.finished, logprobs=told)


async def test_an_uncertain_models_numbers_and_alternatives_are_handed_on(serve: Any, connect: Any) -> None:
    engine = Guessing(Script.of("a b"), "guesses")
    frames = await frames_of(await serve(engine=engine), connect, "websocket", top_logprobs=2)
    (part,) = frames[-1]["response"]["output"][0]["content"]
    assert [one["logprob"] for one in part["logprobs"]] == [-0.5, -0.5]
    assert [top["logprob"] for top in part["logprobs"][0]["top_logprobs"]] == [-0.5, -1.5]
    assert set(engine.asked) == {2}


@pytest.mark.parametrize("kind", ["few", "none"])
async def test_an_engine_that_breaks_its_word_fails_the_turn(serve: Any, connect: Any, kind: str) -> None:
    wire: Wire = await connect(await serve(engine=Guessing(Script.of("a b"), kind)))
    frames = await wire.turn(input="go", top_logprobs=2)
    assert frames[-1]["type"] == "response.failed"
    assert "log probabilities" in frames[-1]["response"]["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "param"), [({"top_logprobs": 1}, "top_logprobs"), ({"include": INCLUDE}, "include")]
)
async def test_an_engine_that_has_none_refuses_by_name_before_the_turn_begins(
    serve: Any, connect: Any, fields: dict[str, Any], param: str
) -> None:
    server = await serve(engine=Guessing(Script.of("a b", on_end="repeat"), "cannot"))
    wire: Wire = await connect(server)
    error = (await wire.refused(input="go", **fields))["error"]
    assert (error["code"], error["param"]) == ("unsupported_parameter", param)
    answer = await post(server, input="go", **fields)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
    assert (await wire.completed(input="go", top_logprobs=0))["status"] == "completed"


async def test_a_turn_that_breaks_off_still_has_what_was_said(serve: Any, connect: Any) -> None:
    script = Script.of(step(WAVE, fault=fault("broke"), fault_after_tokens=9))
    frames = await frames_of(await serve(script), connect, "websocket", include=INCLUDE)
    (part,) = frames[-1]["response"]["output"][0]["content"]
    assert b"".join(bytes(one["bytes"]) for one in part["logprobs"]).decode("utf-8", "replace") == part["text"]
