"""F06, F15, F31, F32, F33: what clients send back of what they were told, over every transport alike."""

from __future__ import annotations

import json
from typing import Any

import pytest

from respserver.engines.sim import Script, call, reasoning, text
from respserver.turn.sealing import Sealer
from tests.support.live import Frame, Wire, ask, calls_of, http, output, text_of, tool, user
from tests.support.spy import Spy

TRANSPORTS = ["websocket", "sse", "json"]
KEY = "0123456789abcdef" * 4
TENANT = "default"
"""Whose everything is on a server without keys."""
THOUGHT = Script.of([reasoning("I should", "say so."), "So."], "And so on.")
transports = pytest.mark.parametrize("transport", TRANSPORTS)


async def refused(server: Any, spy: Spy, wire: Wire, transport: str, **fields: Any) -> Frame:
    """The error of a create that must be refused before anything is done."""
    runs = len(spy.contexts)
    answer = await ask(server, wire, transport, **fields)
    assert (answer["status"], answer["error"]["type"]) == (400, "invalid_request_error"), answer
    assert len(spy.contexts) == runs
    error: Frame = answer["error"]
    return error


@pytest.mark.parametrize(
    ("transport", "store"), [("websocket", True), ("websocket", False), ("sse", True), ("json", True)]
)
async def test_f06_output_items_sent_back_beside_the_id_are_refused(
    serve: Any, connect: Any, transport: str, store: bool
) -> None:
    spy = Spy(Script.of("one", "two"))
    server = await serve(engine=spy)
    wire: Wire = await connect(server)
    parent = (await ask(server, wire, transport, input="go", store=store))["response"]
    (made,) = parent["output"]
    fields = {"input": [user("next"), made], "previous_response_id": parent["id"], "store": store}
    error = await refused(server, spy, wire, transport, **fields)
    assert (error["code"], error["param"]) == ("duplicate_item_id", "input[1].id")
    assert made["id"] in error["message"]


@transports
async def test_f06_an_id_stands_once_in_a_request(serve: Any, connect: Any, transport: str) -> None:
    spy = Spy()
    server = await serve(engine=spy)
    twice = {**user("hi"), "id": "msg_1"}
    error = await refused(server, spy, await connect(server), transport, input=[twice, user("hi"), twice])
    assert (error["code"], error["param"]) == ("duplicate_item_id", "input[2].id")
    assert "msg_1" in error["message"]


@transports
async def test_f06_a_reference_to_what_the_chain_holds_is_refused(serve: Any, connect: Any, transport: str) -> None:
    spy = Spy(Script.of("one", "two"))
    server = await serve(engine=spy)
    wire: Wire = await connect(server)
    parent = (await ask(server, wire, transport, input="go"))["response"]
    reference = {"type": "item_reference", "id": parent["output"][0]["id"]}
    error = await refused(server, spy, wire, transport, input=[reference], previous_response_id=parent["id"])
    assert (error["code"], error["param"]) == ("duplicate_item_id", "input[0].id")
    error = await refused(server, spy, wire, transport, input=[reference, reference])
    assert (error["code"], error["param"]) == ("duplicate_item_id", "input[1].id")


async def test_f06_a_reference_to_what_an_unstored_chain_holds_is_refused_as_twice(serve: Any, connect: Any) -> None:
    spy = Spy(Script.of("one", "two"))
    server = await serve(engine=spy)
    wire: Wire = await connect(server)
    parent = await wire.completed(input="go", store=False)
    reference = {"type": "item_reference", "id": parent["output"][0]["id"]}
    error = await refused(server, spy, wire, "websocket", input=[reference], previous_response_id=parent["id"])
    assert (error["code"], error["param"]) == ("duplicate_item_id", "input[0].id")


@transports
async def test_f15_an_items_id_and_its_call_id_are_two_things(serve: Any, connect: Any, transport: str) -> None:
    spy = Spy(Script.of([reasoning("hm"), "I look.", call("look")], "seen"))
    server = await serve(engine=spy)
    wire: Wire = await connect(server)
    fields: dict[str, Any] = {"tools": [tool("look")], "store": False}
    made = (await ask(server, wire, transport, input="go", **fields))["response"]["output"]
    for item, prefix in zip(made, ("rs_", "msg_", "fc_"), strict=True):
        assert item["id"].startswith(prefix)
        assert len(item["id"]) <= 64
    (called,) = calls_of({"output": made})
    assert called["call_id"] != called["id"]
    without = {name: called[name] for name in called if name != "id"}
    history = [user("go"), *made[:2], without, output(called)]
    assert text_of((await ask(server, wire, transport, input=history, **fields))["response"]) == "seen"
    for bad in ("call_9", "", "fc_" + "0" * 62):
        history[3] = {**called, "id": bad}
        error = await refused(server, spy, wire, transport, input=history, **fields)
        assert error["param"] == "input[3].id"
    history[3] = {**called, "id": "fc_another"}
    assert text_of((await ask(server, wire, transport, input=history, **fields))["response"]) == "seen"


def changed(sealed: str, at: int) -> str:
    """The text with one character changed."""
    return sealed[:at] + ("A" if sealed[at] != "A" else "B") + sealed[at + 1 :]


def compaction(sealer: Sealer, *items: Frame, tenant: str = TENANT) -> Frame:
    """A compaction item that stands for these items."""
    sealed = sealer.seal_items(tenant, [json.dumps(item).encode() for item in items])
    return {"type": "compaction", "id": "cmp_1", "encrypted_content": sealed}


@transports
async def test_f31_compaction_is_not_built_and_whoever_asks_for_it_is_told_so(
    serve: Any, connect: Any, transport: str
) -> None:
    spy = Spy()
    server = await serve(engine=spy)
    wire: Wire = await connect(server)
    rows: list[tuple[Frame, str, str]] = [
        ({"context_management": [{"type": "compaction", "compact_threshold": 1000}]},
         "unsupported_parameter", "context_management"),
        ({"previous_response_id": "cmp_1"}, "previous_response_not_found", "previous_response_id"),
        ({"input": []}, "missing_required_parameter", "input"),
    ]  # fmt: skip
    for fields, code, param in rows:
        error = await refused(server, spy, wire, transport, **{"input": "hi", **fields})
        assert (error["code"], error["param"]) == (code, param)
    async with http(server) as client:
        answer = await client.post("/responses/compact", json={"model": "sim", "input": "hi"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


@transports
async def test_f32_reasoning_that_was_changed_or_made_elsewhere_does_not_verify(
    serve: Any, connect: Any, transport: str
) -> None:
    spy = Spy(THOUGHT)
    server = await serve(engine=spy)
    wire: Wire = await connect(server)
    thought, said = (await ask(server, wire, transport, input="go", store=False))["response"]["output"]
    sealed = thought["encrypted_content"]
    assert "say so" not in json.dumps(thought)
    foreign = Sealer().seal_thoughts(TENANT, ["I should", "say so."])
    others = Sealer(KEY).seal_thoughts("another tenant", ["hm"])
    places = (0, 1, len(sealed) // 2, len(sealed) - 1)
    for bad in (*(changed(sealed, at) for at in places), sealed[:-4], sealed + "AAAA", "", "x", foreign, others):
        history = [user("go"), {**thought, "encrypted_content": bad}, said, user("on")]
        error = await refused(server, spy, wire, transport, input=history, store=False)
        assert error["code"] == "invalid_encrypted_content"
        assert thought["id"] in error["message"]
    for at, item in enumerate((thought, {**thought, "encrypted_content": None})):
        history = [user("go"), item, said, user("on")]
        answer = await ask(server, wire, transport, input=history, store=False)
        assert text_of(answer["response"]) == "And so on."
        assert ("think: I shouldthink: say so." in spy.contexts[-1]) == (at == 0)


@transports
async def test_f32_an_item_without_id_is_named_by_its_place(serve: Any, connect: Any, transport: str) -> None:
    spy = Spy()
    server = await serve(engine=spy)
    bad = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    error = await refused(server, spy, await connect(server), transport, input=[user("hi"), bad])
    assert error["message"] == "The encrypted content for item input[1] could not be verified."
    assert error["param"] == "input[1].encrypted_content"


@transports
async def test_f32_a_compaction_stands_for_what_is_sealed_in_it(serve: Any, connect: Any, transport: str) -> None:
    spy = Spy(Script.of("Fine."))
    server = await serve(engine=spy, encryption_key=KEY)
    wire: Wire = await connect(server)
    good = compaction(Sealer(KEY), user("The story so far: one."), {"role": "assistant", "content": "Two."})
    bad_ones = [
        compaction(Sealer(), user("forged")),
        compaction(Sealer(KEY), user("another's"), tenant="another"),
        {**good, "encrypted_content": changed(good["encrypted_content"], 40)},
        {**good, "encrypted_content": Sealer(KEY).seal_thoughts(TENANT, ["another kind"])},
    ]
    for bad in bad_ones:
        error = await refused(server, spy, wire, transport, input=[bad, user("go on")])
        assert (error["code"], error["param"]) == ("invalid_encrypted_content", "input[0].encrypted_content")
        assert "cmp_1" in error["message"]
    await ask(server, wire, transport, input=[good, user("go on")])
    assert spy.contexts[-1] == "user: The story so far: one.\nassistant: Two.\nuser: go on"
    await ask(server, wire, transport, input=[{**good, "encrypted_content": None}, user("go on")])
    assert spy.contexts[-1] == "user: go on"


@transports
async def test_f32_with_a_fixed_key_a_restart_invalidates_nothing(serve: Any, connect: Any, transport: str) -> None:
    first = await serve(engine=Spy(THOUGHT), encryption_key=KEY)
    made = (await ask(first, await connect(first), transport, input="go"))["response"]["output"]
    spy = Spy(THOUGHT)
    restarted = await serve(engine=spy, encryption_key=KEY)
    wire: Wire = await connect(restarted)
    answer = await ask(restarted, wire, transport, input=[user("go"), *made, user("on")])
    assert text_of(answer["response"]) == "And so on."
    assert "think: I shouldthink: say so." in spy.contexts[-1]


async def test_f32_another_keys_tenant_cannot_open_it(serve: Any) -> None:
    server = await serve(engine=Spy(THOUGHT), api_key=("sk-one", "sk-two"))
    statuses = {}
    made: list[Frame] = []
    for key in ("sk-one", "sk-two"):
        async with http(server, headers={"authorization": f"Bearer {key}"}) as client:
            if not made:
                made = (await client.post("/responses", json={"model": "sim", "input": "go"})).json()["output"]
            answer = await client.post("/responses", json={"model": "sim", "input": [user("hi"), *made, user("hi")]})
            statuses[key] = answer.status_code
    assert statuses == {"sk-one": 200, "sk-two": 400}


LONE = [user("go"), {"type": "reasoning", "id": "rs_1", "summary": []}, user("on")]
LAST = LONE[:2]
BARE = [user("go"), {"type": "reasoning", "id": "rs_1"}, {"role": "assistant", "content": "So."}, user("on")]
WHOLE = [user("go"), {"type": "reasoning", "id": "rs_1", "summary": []}, *BARE[2:]]


@transports
@pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])
async def test_f33_reasoning_needs_its_summary_and_what_follows_it_in_strict_mode_only(
    serve: Any, connect: Any, transport: str, strict: bool
) -> None:
    spy = Spy(Script.of("Fine.", "Fine."))
    server = await serve(engine=spy, strict=strict)
    wire: Wire = await connect(server)
    if strict:
        for history in (LONE, LAST):
            lone = await refused(server, spy, wire, transport, input=history)
            assert (
                lone["message"] == "Item 'rs_1' of type 'reasoning' was provided without its required following item."
            )
            assert (lone["code"], lone["param"]) == ("reasoning_without_following_item", "input")
        bare = await refused(server, spy, wire, transport, input=BARE)
        assert (bare["code"], bare["param"]) == ("missing_required_parameter", "input[1].summary")
    else:
        for history in (LONE, LAST, BARE):
            assert text_of((await ask(server, wire, transport, input=history))["response"]) == "Fine."
    assert text_of((await ask(server, wire, transport, input=WHOLE))["response"]) == "Fine."


@transports
@pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])
async def test_f33_a_reference_to_an_item_that_is_not_stored_is_refused(
    serve: Any, connect: Any, transport: str, strict: bool
) -> None:
    spy = Spy(Script.of([reasoning("hm"), "So."]))
    server = await serve(engine=spy, strict=strict)
    wire: Wire = await connect(server)
    thought, _ = (await ask(server, wire, transport, input="go", store=False))["response"]["output"]
    reference = {"type": "item_reference", "id": thought["id"]}
    error = await refused(server, spy, wire, transport, input=[user("go"), reference])
    assert error["message"] == (
        f"Item with id '{thought['id']}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input."
    )
    assert (error["code"], error["param"]) == ("item_not_found", "input[1].id")


@transports
async def test_f33_references_to_stored_items_stand_for_them(serve: Any, connect: Any, transport: str) -> None:
    spy = Spy(Script.of([reasoning("hm"), call("look")], text("Seen.")))
    server = await serve(engine=spy, strict=True)
    wire: Wire = await connect(server)
    tools = [tool("look")]
    first = (await ask(server, wire, transport, input="go", tools=tools))["response"]
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    history = [user("go"), *references, output(first["output"][1], "grass")]
    final = (await ask(server, wire, transport, input=history, tools=tools))["response"]
    assert text_of(final) == "Seen."
    assert spy.contexts[-1].endswith("user: go\nassistantthink: hm\ncall look: {}\ntool look: grass")
    async with http(server) as client:
        await client.delete(f"/responses/{final['id']}")
        await client.delete(f"/responses/{first['id']}")
    gone = await refused(server, spy, wire, transport, input=history, tools=tools)
    assert (gone["code"], gone["param"]) == ("item_not_found", "input[1].id")
