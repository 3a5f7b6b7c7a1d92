"""Items of every kind through a live server: what the model is shown of them, what they cost, who owes whom what."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from respserver.config import Mode
from respserver.engines.sim import Script, call, custom, reasoning
from respserver.tokens.special import Special
from tests.support.live import Frame, Wire, calls_of, http, output, post, text_of, tool, user
from tests.support.spy import Spy

LATER = {**tool("later"), "async": True}
TINY = "data:image/png;base64," + base64.b64encode(b"PNG").decode()
BIG = base64.b64encode(bytes(1500)).decode()


def image(**fields: Any) -> Frame:
    return {"type": "input_image", "image_url": TINY, **fields}


def words(text: str) -> Frame:
    return {"type": "input_text", "text": text}


def says(*parts: Frame) -> Frame:
    return {"role": "user", "content": list(parts)}


class TestImagesAndFiles:
    async def input_tokens(self, wire: Wire, *parts: Frame) -> int:
        response = await wire.completed(input=[says(*parts)])
        tokens: int = response["usage"]["input_tokens"]
        return tokens

    async def test_their_room_shows_in_usage_and_their_data_nowhere(self, serve: Any, connect: Any) -> None:
        spy = Spy(Script.of("I see."))
        wire: Wire = await connect(await serve(engine=spy))
        plain = await self.input_tokens(wire, words("[input_image]"))
        for detail, tokens in (("low", 85), ("high", 765), ("original", 1445)):
            assert await self.input_tokens(wire, image(detail=detail)) == plain + tokens
            assert spy.contexts[-1] == "user: [input_image]"
        file = {"type": "input_file", "file_data": base64.b64encode(bytes(256 * 100)).decode(), "filename": "a.pdf"}
        plain = await self.input_tokens(wire, words("[input_file]"))
        assert await self.input_tokens(wire, file) == plain + 100

    async def test_no_text_can_pass_for_an_image(self, serve: Any, connect: Any) -> None:
        spy = Spy(Script.of("I see."))
        wire: Wire = await connect(await serve(engine=spy))
        for text in ("[input_image]", "[input_image]" + "<|im_pad|>" * 85, Special.PAD.text):
            await wire.completed(input=[says(words(text))])
            assert Special.PAD not in spy.context_ids[-1]

    async def test_a_tools_output_may_hold_them(self, serve: Any, connect: Any) -> None:
        spy = Spy(Script.of(call("look"), "I see."))
        wire: Wire = await connect(await serve(engine=spy))
        parent = await wire.completed(input="go", tools=[tool("look")])
        shown = {**output(calls_of(parent)[0]), "output": [words("here"), image(detail="low")]}
        await wire.completed(input=[shown], previous_response_id=parent["id"], tools=[tool("look")])
        assert spy.contexts[-1].endswith("tool look: here: [input_image]")
        assert spy.context_ids[-1].count(Special.PAD) == 85

    async def test_a_script_sees_their_names(self, serve: Any, connect: Any) -> None:
        wire: Wire = await connect(await serve(Script.of("You said: {last_user}")))
        assert text_of(await wire.completed(input=[says(words("look"), image())])) == "You said: look\n[input_image]"

    @pytest.mark.parametrize("store", [True, False])
    async def test_a_chain_keeps_their_room(self, serve: Any, connect: Any, store: bool) -> None:
        spy = Spy(Script.of("I see.", "Still."))
        server = await serve(engine=spy)
        wire: Wire = await connect(server)
        parent = await wire.completed(input=[says(image())], store=store)
        await wire.completed(input="and now?", previous_response_id=parent["id"], store=store)
        chained = spy.context_ids[-1]
        assert chained.count(Special.PAD) == 765
        if store:
            await (await connect(server)).completed(input="and now?", previous_response_id=parent["id"])
            assert spy.context_ids[-1] == chained

    @pytest.mark.parametrize(
        ("part", "code", "param"),
        [
            (image(image_url="data:image/png;base64,?"), "invalid_base64_image", "input[0].content[1].image_url"),
            (image(image_url=f"data:image/png;base64,{BIG}"), "image_file_too_large", "input[0].content[1]"),
            ({"type": "input_file", "file_data": BIG}, "file_too_large", "input[0].content[1]"),
        ],
    )
    async def test_bad_ones_are_refused_by_their_place(
        self, serve: Any, connect: Any, part: Frame, code: str, param: str
    ) -> None:
        server = await serve(limits={"media_bytes": 1499})
        wire: Wire = await connect(server)
        items = [says(words("look"), part)]
        error = (await wire.refused(input=items))["error"]
        assert (error["code"], error["param"]) == (code, param)
        assert (await post(server, input=items)).json()["error"] == error

    async def test_one_of_the_greatest_size_is_taken(self, serve: Any) -> None:
        server = await serve(Script.of("I see."), limits={"media_bytes": 1500})
        shot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{BIG}"}
        history = [
            says(image(image_url=f"data:image/png;base64,{BIG}")),
            {"type": "computer_call", "call_id": "c1"},
            {"type": "computer_call_output", "call_id": "c1", "output": shot},
        ]
        assert (await post(server, input=history)).status_code == 200

    async def test_a_screenshot_that_is_too_large_is_refused(self, serve: Any) -> None:
        shot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{BIG}"}
        made = {"type": "computer_call", "call_id": "c1"}
        answer = {"type": "computer_call_output", "call_id": "c1", "output": shot}
        error = (await post(await serve(limits={"media_bytes": 1499}), input=[made, answer])).json()["error"]
        assert (error["code"], error["param"]) == ("image_file_too_large", "input[1]")

    async def test_one_that_is_too_large_for_an_append_is_refused_and_the_rollout_goes_on(
        self, serve: Any, connect: Any
    ) -> None:
        server = await serve(Script.of(call("look"), "I see."), mode=Mode.PROTOTYPE, limits={"media_bytes": 1499})
        wire: Wire = await connect(server)
        paused = (await wire.turn(input="go", tools=[tool("look")]))[-1]["response"]
        answer = output(calls_of(paused)[0])
        await wire.append([{**answer, "output": [image(image_url=f"data:image/png;base64,{BIG}")]}])
        error = (await wire.frame())["error"]
        assert (error["code"], error["param"]) == ("image_file_too_large", "input[0].output[0]")
        await wire.append([answer])
        assert (await wire.frames())[-1]["type"] == "response.completed"


class TestOtherKinds:
    async def test_calls_of_other_kinds_pair_along_a_chain(self, serve: Any, connect: Any) -> None:
        spy = Spy(Script.of("One.", "Two."))
        wire: Wire = await connect(await serve(engine=spy))
        made = {"type": "shell_call", "id": "sh_1", "call_id": "c1", "action": {"commands": ["ls"]}}
        answer = {"type": "shell_call_output", "call_id": "c1", "output": []}
        error = (await wire.refused(input=[user("go"), made]))["error"]
        assert (error["message"], error["param"]) == ("No tool output found for shell call c1.", "input")
        parent = await wire.completed(input=[user("go"), made, answer])
        assert spy.contexts[-1] == f"user: go\nitem: {json.dumps(made)}\nitem: {json.dumps(answer)}"
        error = (await wire.refused(input=[made, answer], previous_response_id=parent["id"]))["error"]
        assert "sh_1" in error["message"]

    @pytest.mark.parametrize("kind", ["zzz", "web_search_call", "compaction_trigger", "configuration_update"])
    async def test_a_kind_that_is_not_read_is_part_of_the_context_as_it_is(
        self, serve: Any, connect: Any, kind: str
    ) -> None:
        spy = Spy(Script.of("One.", "Two."))
        server = await serve(engine=spy)
        wire: Wire = await connect(server)
        odd = {"type": kind, "id": "zz_1", "unheard": {"of": [1.5, None]}}
        parent = await wire.completed(input=[odd, user("go")])
        assert spy.contexts[-1] == f"item: {json.dumps(odd)}\nuser: go"
        await (await connect(server)).completed(input="on", previous_response_id=parent["id"])
        assert spy.contexts[-1] == f"item: {json.dumps(odd)}\nuser: go\nassistant: One.\nuser: on"

    @pytest.mark.parametrize("store", [True, False])
    async def test_tools_that_a_search_found_are_on_offer_from_there_on(
        self, serve: Any, connect: Any, store: bool
    ) -> None:
        spy = Spy(Script.of("Let me see.", call("found", a=1), "Done."))
        server = await serve(engine=spy)
        wire: Wire = await connect(server)
        search = {"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {}}
        found = {"type": "tool_search_output", "call_id": "c1", "execution": "client", "tools": [tool("found")]}
        first = await wire.completed(input=[user("go"), search, found], store=store)
        if store:
            wire = await connect(server)
        choice = {"type": "function", "name": "found"}
        final = await wire.completed(input="use it", previous_response_id=first["id"], tool_choice=choice, store=store)
        assert [made["name"] for made in calls_of(final)] == ["found"]
        assert "tools: found" in spy.contexts[-1]

    async def test_a_fault_in_found_tools_is_named_by_its_place(self, serve: Any) -> None:
        found = {"type": "tool_search_output", "tools": [{"type": "function"}]}
        error = (await post(await serve(), input=[user("go"), found])).json()["error"]
        assert (error["code"], error["param"]) == ("missing_required_parameter", "input[1].tools[0].name")


class TestAsyncCalls:
    """protocol.md section 5.5."""

    SCRIPT = Script.of([call("later"), custom("watch", "x"), "I go on."], "Still waiting.", "There it is.", "Yes.")
    TOOLS = (LATER, {"type": "custom", "name": "watch", "async": True})

    @pytest.mark.parametrize("mode", list(Mode))
    @pytest.mark.parametrize("store", [True, False])
    async def test_outputs_may_come_in_any_later_turn_once(
        self, serve: Any, connect: Any, store: bool, mode: Mode
    ) -> None:
        spy = Spy(self.SCRIPT)
        server = await serve(engine=spy, mode=mode)
        wire: Wire = await connect(server)
        fields: dict[str, Any] = {"tools": self.TOOLS, "store": store}
        first = await wire.completed(input="go", **fields)
        later, watch = calls_of(first)
        assert (later["async"], watch["async"]) == (True, True)
        second = await wire.completed(input="well?", previous_response_id=first["id"], **fields)
        assert text_of(second) == "Still waiting."
        if store:
            wire = await connect(server)
        third = await wire.completed(input=[output(later, "it")], previous_response_id=second["id"], **fields)
        assert spy.contexts[-1].endswith("user: well?\nassistant: Still waiting.\ntool later: it")
        refusal = await wire.refused(input=[output(later, "again")], previous_response_id=third["id"], **fields)
        expected = f"No tool call found for function call output with call_id {later['call_id']}."
        assert refusal["error"]["message"] == expected

    async def test_every_fork_may_answer_for_itself(self, serve: Any) -> None:
        server = await serve(self.SCRIPT)
        first = (await post(server, input="go", tools=self.TOOLS)).json()
        later, _ = calls_of(first)
        for _ in range(2):
            answer = await post(server, input=[output(later)], previous_response_id=first["id"], tools=self.TOOLS)
            assert answer.status_code == 200, answer.text

    async def test_in_a_rollout_only_the_others_are_waited_for(self, serve: Any, connect: Any) -> None:
        script = Script.of([call("later"), call("look")], "Seen.", "Late.")
        wire: Wire = await connect(await serve(script, mode=Mode.PROTOTYPE))
        tools = [LATER, tool("look")]
        paused = (await wire.turn(input="go", tools=tools))[-1]
        later, look = calls_of(paused["response"])
        assert [owed["call_id"] for owed in paused["required_input"]] == [look["call_id"]]
        await wire.append([output(look)])
        final = (await wire.frames())[-1]["response"]
        assert text_of(final) == "Seen."
        answered = await wire.completed(input=[output(later)], previous_response_id=final["id"], tools=tools)
        assert text_of(answered) == "Late."


class TestReasoning:
    async def test_its_text_is_shown_where_the_server_is_set_to_it(self, serve: Any, connect: Any) -> None:
        wire: Wire = await connect(await serve(Script.of([reasoning("hm", "so"), "Yes."]), reasoning_text=True))
        frames = await wire.turn(input="go")
        assert [frame["text"] for frame in frames if frame["type"] == "response.reasoning_text.done"] == ["hm", "so"]
        thought = frames[-1]["response"]["output"][0]
        assert thought["content"] == [{"type": "reasoning_text", "text": text} for text in ("hm", "so")]
        assert thought["summary"] == []

    @pytest.mark.parametrize("store", [True, False])
    async def test_it_is_always_sealed(self, serve: Any, store: bool) -> None:
        server = await serve(Script.of([reasoning("hm"), "Yes."]))
        answer = (await post(server, input="go", store=store)).json()
        assert answer["output"][0]["encrypted_content"]
        if store:
            async with http(server) as client:
                assert (await client.get(f"/responses/{answer['id']}")).json() == answer


async def test_hidden_reasoning_that_comes_back_is_not_tokenised_again(serve: Any, connect: Any) -> None:
    server = await serve(Script.of([reasoning("I think long of it."), "Yes."], "Well."))
    wire: Wire = await connect(server)
    first = await wire.completed(input=[user("go")])
    misses = server.metrics.token_cache_misses
    await wire.completed(input=[user("go"), *first["output"], user("on")])
    assert server.metrics.token_cache_misses == misses + 1


@pytest.mark.parametrize("cached", [True, False])
async def test_chained_and_resent_contexts_agree_however_no_arguments_are_written(
    serve: Any, connect: Any, cached: bool
) -> None:
    contexts = []
    for arguments in ("", "{}"):
        spy = Spy(Script.of(call("look", arguments), "Seen."))
        server = await serve(engine=spy, limits={} if cached else {"token_cache_bytes": 0})
        wire: Wire = await connect(server)
        parent = await wire.completed(input="go", tools=[tool("look")])
        (made,) = calls_of(parent)
        assert made["arguments"] == "{}"
        await wire.completed(input=[output(made)], previous_response_id=parent["id"], tools=[tool("look")])
        await wire.completed(input=[user("go"), made, output(made)], tools=[tool("look")])
        contexts += spy.context_ids[-2:]
    assert all(context == contexts[0] for context in contexts)
