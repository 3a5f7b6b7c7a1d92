"""The stations of a turn that the field cases do not reach: other tokenizers, limits, kept heads, the worker."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

from respserver.config import Config, Limits, RouteConfig
from respserver.engines.sim import Script, Sim, call, delay, fault, step
from respserver.errors import ConfigError, ModelNotFound
from respserver.metrics import MAX_UNKNOWN_FIELDS, Metrics
from respserver.services import build_services, bundled_template, new_id
from respserver.session import Session
from respserver.tokens.render import Template
from respserver.turn.postinference import PostInference, TurnRecord
from respserver.turn.routing import KeptRoute, Route, Router
from tests.support.fake_socket import FakeSocket
from tests.support.live import Wire, calls_of, http, output, post, text_of, tool
from tests.support.spy import Spy

TOOLS = [tool("first")]


class OtherTemplate(Template):
    """The same text work under another name, as another model's would be."""

    def __init__(self) -> None:
        super().__init__(bundled_template().tokenizer)
        self.fingerprint = "other"


@pytest.mark.parametrize("store", [False, True])
async def test_a_chain_goes_on_at_a_model_with_another_tokenizer(store: bool) -> None:
    """The past is rendered again, once, from its items; the model sees the same conversation."""
    first, second = Spy(Script.of(call("first"), "one", "two")), Spy(Script.of("-", "-", "three"))
    parts = build_services(Config(), engine=first)
    other = OtherTemplate()
    parts.router = Router(
        [
            Route(pattern="a", engine=first, template=bundled_template()),
            Route(pattern="b", engine=second, template=other),
        ],
        parts.metrics,
    )
    async with trio.open_nursery() as nursery:
        socket = FakeSocket()
        nursery.start_soon(Session(socket, parts, tenant="t", stop=trio.Event()).run)

        async def turn(model: str, **fields: Any) -> Any:
            socket.say({"type": "response.create", "model": model, "store": store, **fields})
            last = (await socket.hear_step())[-1]
            assert last["type"] == "response.completed", last
            return last["response"]

        one = await turn("a", input="go", tools=TOOLS)
        two = await turn("a", previous_response_id=one["id"], input=[output(calls_of(one)[0], "done")])
        before = parts.metrics.items_rendered
        three = await turn("b", previous_response_id=two["id"], input="and now?")
        assert text_of(three) == "three"
        assert parts.metrics.items_rendered - before == 5  # the four of the past, and the new one
        assert second.contexts == [
            "user: go\ncall first: {}\ntool first: done\nassistant: one\nuser: and now?",
        ]
        if store:
            again = await turn("b", previous_response_id=two["id"], input="and now?")
            assert text_of(again) == "three"
            assert second.contexts[0] == second.contexts[1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("transport", ["websocket", "json"])
async def test_a_context_over_the_window_fails_the_turn_after_it_began(
    serve: Any, connect: Any, transport: str
) -> None:
    server = await serve(routes=(RouteConfig(pattern="*", context_window=50),))
    if transport == "json":
        answer = await post(server, input="word " * 100)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
        return
    wire: Wire = await connect(server)
    frames = await wire.turn(input="word " * 100)
    assert [frame["type"] for frame in frames] == ["response.created", "response.in_progress", "response.failed"]
    assert frames[-1]["response"]["error"]["code"] == "context_length_exceeded"
    assert (await wire.turn(input="short"))[-1]["type"] == "response.completed"


async def test_what_the_window_leaves_bounds_the_answer(serve: Any, connect: Any) -> None:
    server = await serve(Script.of("word " * 100), routes=(RouteConfig(pattern="*", context_window=50),))
    wire: Wire = await connect(server)
    last = (await wire.turn(input="hi"))[-1]
    assert last["type"] == "response.incomplete"
    assert last["response"]["usage"]["total_tokens"] == 50


async def test_an_answer_that_just_fits_its_limit_is_complete(serve: Any, connect: Any) -> None:
    server = await serve(
        Script.of("a few words that are certainly long enough for the limit of sixteen", on_end="repeat")
    )
    wire: Wire = await connect(server)
    needed = (await wire.completed(input="hi"))["usage"]["output_tokens"]
    assert needed > 16
    assert (await wire.turn(input="hi", max_output_tokens=needed))[-1]["type"] == "response.completed"
    assert (await wire.turn(input="hi", max_output_tokens=needed - 1))[-1]["type"] == "response.incomplete"


async def test_an_incomplete_response_can_be_continued(serve: Any, connect: Any) -> None:
    spy = Spy(Script.of("word " * 100, "next"))
    wire: Wire = await connect(await serve(engine=spy))
    cut = (await wire.turn(input="hi", max_output_tokens=20))[-1]["response"]
    assert cut["output"][0]["status"] == "incomplete"
    assert text_of(await wire.completed(previous_response_id=cut["id"], input="go on")) == "next"
    assert spy.contexts[-1].endswith("word\nuser: go on") or "word word" in spy.contexts[-1]


async def test_a_call_that_the_limit_cut_owes_no_output(serve: Any, connect: Any) -> None:
    script = Script.of(call("first", text="long " * 100), "next")
    wire: Wire = await connect(await serve(script))
    cut = (await wire.turn(input="hi", max_output_tokens=30, tools=TOOLS))[-1]["response"]
    assert (cut["output"][-1]["type"], cut["output"][-1]["status"]) == ("function_call", "incomplete")
    assert text_of(await wire.completed(previous_response_id=cut["id"], input="go on")) == "next"


FAULTS = {
    "before the first item": Script.of([fault("broke")], "next"),
    "inside a message": Script.of(step("some text here", fault=fault("broke"), fault_after_tokens=4), "next"),
    "inside arguments": Script.of(step(call("first", a="b" * 50), fault=fault("broke"), fault_after_tokens=9), "next"),
    "between two calls": Script.of([call("first"), fault("broke"), call("first")], "next"),
}


@pytest.mark.parametrize("transport", ["websocket", "sse"])
@pytest.mark.parametrize("place", sorted(FAULTS))
async def test_a_model_fault_ends_the_turn_with_one_terminal_and_every_item_closed(
    serve: Any, connect: Any, transport: str, place: str
) -> None:
    spy = Spy(FAULTS[place])
    server = await serve(engine=spy)
    if transport == "sse":
        answer = await post(server, input="hi", stream=True, tools=TOOLS)
        kinds = [line.removeprefix("event: ") for line in answer.text.split("\n") if line.startswith("event: ")]
        assert kinds[-2:] == ["error", "response.failed"]
        assert answer.text.endswith("data: [DONE]\n\n")
        return
    wire: Wire = await connect(server)
    frames = await wire.turn(input="hi", tools=TOOLS)
    kinds = [frame["type"] for frame in frames]
    assert kinds[-1] == "response.failed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done")
    assert all(item["status"] != "in_progress" for item in frames[-1]["response"]["output"])
    await trio.testing.wait_all_tasks_blocked()  # runs are closed behind the turns
    assert spy.sequences_open == 0
    assert (await wire.turn(input="again", tools=TOOLS))[-1]["type"] == "response.failed"  # the script's first step


async def test_unknown_fields_are_taken_and_counted_by_name_and_refused_when_strict(serve: Any, connect: Any) -> None:
    server = await serve()
    wire: Wire = await connect(server)
    await wire.completed(input="hi", brand_new=1)
    assert server.metrics.unknown_fields == {"brand_new": 1}
    strict: Wire = await connect(await serve(strict=True))
    error = await strict.refused(input="hi", brand_new=1)
    assert (error["error"]["code"], error["error"]["param"]) == ("unknown_parameter", "brand_new")


def test_the_names_of_unknown_fields_cannot_fill_the_memory() -> None:
    metrics = Metrics()
    for number in range(2 * MAX_UNKNOWN_FIELDS):
        metrics.count_unknown(f"field_{number}")
    assert len(metrics.unknown_fields) == MAX_UNKNOWN_FIELDS


async def test_tool_choice_must_name_what_is_on_offer(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve())
    named = {"type": "function", "name": "nobody"}
    error = await wire.refused(input="hi", tools=TOOLS, tool_choice=named)
    assert (error["error"]["param"], error["status"]) == ("tool_choice", 400)
    error = await wire.refused(input="hi", tool_choice="required")
    assert error["error"]["param"] == "tool_choice"
    made = await wire.completed(input="hi", tools=TOOLS, tool_choice={"type": "function", "name": "first"})
    assert calls_of(made)[0]["name"] == "first"


NAMESPACED = [{"type": "namespace", "name": "ns", "tools": [tool("f")]}, {"type": "custom", "name": "run"}]


@pytest.mark.parametrize("name", ["f", "ns.f"])
@pytest.mark.parametrize("form", ["forced", "allowed"])
async def test_tool_choice_reaches_tools_in_a_namespace(serve: Any, connect: Any, name: str, form: str) -> None:
    wire: Wire = await connect(await serve())
    named = {"type": "function", "name": name}
    choice = named if form == "forced" else {"type": "allowed_tools", "mode": "required", "tools": [named]}
    (made,) = calls_of(await wire.completed(input="hi", tools=NAMESPACED, tool_choice=choice))
    assert (made["name"], made["namespace"]) == ("f", "ns")


async def test_tool_choice_of_another_kind_is_refused(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve())
    error = await wire.refused(input="hi", tools=NAMESPACED, tool_choice={"type": "function", "name": "run"})
    assert error["error"]["param"] == "tool_choice"


async def test_tools_of_the_context_stay_on_offer_in_a_chain_and_from_the_store(serve: Any, connect: Any) -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [tool("get_tide")]}
    server = await serve()
    wire: Wire = await connect(server)
    warm = await wire.completed(input=[item], generate=False)
    called = await wire.completed(previous_response_id=warm["id"], input="tide?")
    assert calls_of(called)[0]["name"] == "get_tide"
    answer = await post(server, previous_response_id=warm["id"], input="tide?", tool_choice="required")
    assert calls_of(answer.json())[0]["name"] == "get_tide"


def record(number: int) -> TurnRecord:
    return TurnRecord(
        response_id=f"resp_{number}",
        previous_response_id=None,
        connection_id="conn_1",
        transport="websocket",
        tenant="t",
        model="sim",
        status="completed",
    )


async def test_no_record_is_lost_when_the_worker_is_behind_or_the_server_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    post_inference = PostInference(max_waiting=2)
    with caplog.at_level(logging.INFO, "respserver.turn"):
        for number in range(4):
            post_inference.submit(record(number))
        assert len(caplog.records) == 2  # the line holds two, the others were worked on the spot
        post_inference.close()
        post_inference.submit(record(4))
        await post_inference.run()
    assert {entry.response_id for entry in caplog.records} == {f"resp_{number}" for number in range(5)}


def test_routes_go_by_pattern_first_match_first() -> None:
    metrics = Metrics()
    engine = Sim(bundled_template())
    routes = [Route(pattern=pattern, engine=engine, template=bundled_template()) for pattern in ("gpt-*", "gpt-5")]
    router = Router(routes, metrics)
    assert router.resolve("gpt-5") is routes[0]
    with pytest.raises(ModelNotFound):
        router.resolve("o3")
    kept = KeptRoute(router)
    assert kept.resolve("gpt-5") is kept.resolve("gpt-5")
    assert (metrics.routes_resolved, metrics.route_hits) == (3, 1)


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown engine 'vroom'"):
        build_services(Config(routes=(RouteConfig(pattern="*", engine="vroom"),)))


def test_strict_models_without_names_leave_the_embedded_model_alone() -> None:
    routes = build_services(Config(strict_models=True)).router
    assert routes.resolve("sim").pattern == "sim"
    with pytest.raises(ModelNotFound):
        routes.resolve("gpt-5")


def test_ids_have_their_prefix_and_never_repeat() -> None:
    ids = {new_id("resp") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(item.startswith("resp_") and len(item) <= 64 for item in ids)


async def test_a_json_client_that_waits_is_told_of_a_shutdown() -> None:
    from respserver.auth import KeyRing
    from respserver.embed import running_server
    from respserver.server import Server

    config = Config(port=0, limits=Limits(grace_seconds=0.05))
    server = Server(config, build_services(config, script=Script.of([delay(60), "never"])), KeyRing({}))
    answers: list[Any] = []
    async with trio.open_nursery() as nursery:
        ready: list[Any] = []
        nursery.start_soon(server.serve, ready.append)
        while not ready:
            await trio.sleep(0.001)
        running = running_server(server, ready[0])

        async def ask() -> None:
            async with http(running) as client:
                answers.append(await client.post("/responses", json={"model": "sim", "input": "hi"}))

        nursery.start_soon(ask)
        while not server.services.metrics.turns:
            await trio.sleep(0.001)
        server.stop.set()
    assert (answers[0].status_code, answers[0].json()["error"]["code"]) == (503, "server_shutting_down")
