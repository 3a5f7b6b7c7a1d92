"""Rehearsal: which tool is called, with what, and what is said afterwards."""

from __future__ import annotations

import json
import time
from typing import Any

import jsonschema
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from respserver.engines.sim.offer import likeness
from respserver.engines.sim.rehearse import COMMAND, JAVASCRIPT_COMMAND, QUOTED
from respserver.errors import ModelFault
from respserver.schema.items import AdditionalToolsItem
from tests.support.sim_kit import called, function, head, output, respond, said, sim, template, user

STRING = {"type": "string"}
SHELL = function("exec_command", ["cmd"], cmd=STRING, workdir=STRING)
WEATHER = function("get_weather", ["city"], city=STRING)
DELETE = function("delete_file", ["path"], path=STRING)
CALLED_SHELL = ("function_call", "exec_command", '{"cmd":"echo hello from respserver"}')


def custom(name: str, **fields: Any) -> dict[str, Any]:
    return {"type": "custom", "name": name, **fields}


async def call_of(*tools: dict[str, Any], **params: Any) -> tuple[Any, ...]:
    """The one item that answers a user's message with these tools on offer."""
    [item] = await respond(sim(), head(*tools), user("hi"), **params)
    return item


class TestWhichTool:
    @pytest.mark.parametrize(
        "name",
        ["get_weather", "list-files", "searchWeb", "read", "look_up_word", "lookup", "fetch.url", "find_all", "GetIt"],
    )
    async def test_a_name_that_reads_as_harmless_is_called(self, name: str) -> None:
        assert (await call_of(DELETE, function(name)))[:2] == ("function_call", name)

    @pytest.mark.parametrize(
        "name",
        [
            "delete_file",
            "update_plan",
            "apply_patch",
            "getaway",
            "forget",
            "looking",
            "find_and_replace",
            "get_or_create",
            "send_get",
            "wait",
        ],
    )
    async def test_other_names_are_not(self, name: str) -> None:
        assert await call_of(function(name)) == ("message", "You said: hi")

    async def test_a_shell_comes_before_a_reader_and_the_first_before_the_second(self) -> None:
        assert await call_of(WEATHER, SHELL) == CALLED_SHELL
        assert (await call_of(WEATHER, function("list_files")))[1] == "get_weather"
        assert (await call_of(function("bash", command=STRING), SHELL))[1] == "bash"

    @pytest.mark.parametrize("role", ["user", "developer", "system"])
    async def test_it_answers_messages_of_these_roles(self, role: str) -> None:
        assert await respond(sim(), head(SHELL), user("hi", role=role)) == [CALLED_SHELL]

    async def test_every_user_message_is_answered_with_a_call(self) -> None:
        context = [head(SHELL), user("hi"), called("exec_command"), output("x"), said("done"), user("again")]
        assert await respond(sim(), *context) == [CALLED_SHELL]

    async def test_tools_of_unknown_kinds_are_passed_over(self) -> None:
        assert await call_of({"type": "web_search"}, {"type": "tool_search", "parameters": {}}, SHELL) == CALLED_SHELL

    async def test_tools_that_join_later_are_on_offer_beside_the_first(self) -> None:
        raw = json.dumps([{"type": "namespace", "name": "functions", "tools": [SHELL]}]).encode()
        item = AdditionalToolsItem(raw=b"{}", tools=raw)  # type: ignore[arg-type]  # Raw is made of bytes
        more = template().tokenise(template().item(item))
        assert await respond(sim(), head(WEATHER), more, user("hi")) == [CALLED_SHELL]
        assert (await respond(sim(), head(WEATHER), user("hi"), said("a"), more, user("b")))[0] == CALLED_SHELL

    async def test_a_namespace_is_part_of_the_name(self) -> None:
        namespace = {"type": "namespace", "name": "files", "tools": [function("list_all")]}
        assert await call_of(namespace) == ("function_call", "files.list_all", "{}")

    async def test_tools_that_cannot_be_read_are_a_model_fault(self) -> None:
        with pytest.raises(ModelFault, match="tools in the context cannot be read"):
            await call_of({"type": "function"})

    async def test_a_shell_without_a_place_for_a_command_makes_room_for_the_next(self) -> None:
        assert (await call_of(function("bash"), function("shell", command=STRING)))[1] == "shell"

    async def test_a_tool_of_a_kind_that_is_not_known_may_hold_anything(self) -> None:
        assert await call_of({"type": "later", "name": 5, "tools": {}, "description": []}, SHELL) == CALLED_SHELL

    async def test_a_definition_that_comes_again_replaces_the_first(self) -> None:
        assert await call_of(function("shell", cmd=STRING), custom("shell")) == ("custom_tool_call", "shell", COMMAND)

    @pytest.mark.parametrize(
        ("name", "reads_as"),
        [
            ("__run-Shell.Command", "shell"),
            ("localShell", "shell"),
            ("shells", "other"),
            ("HTTPGet", "other"),
            ("getHTTPUpdate", "other"),
            ("getHTTPHead", "reader"),
            ("-lookUp", "reader"),
            ("listABigDelete", "other"),
            ("é", "other"),
            ("", "other"),
        ],
    )
    def test_names_are_read_word_by_word(self, name: str, reads_as: str) -> None:
        assert likeness(name) == reads_as


class TestToolChoice:
    async def test_none_calls_nothing(self) -> None:
        assert await call_of(SHELL, tool_mode="none") == ("message", "You said: hi")

    async def test_required_calls_any_tool_but_a_harmless_one_first(self) -> None:
        assert (await call_of(DELETE, tool_mode="required"))[1] == "delete_file"
        assert (await call_of(DELETE, WEATHER, tool_mode="required"))[1] == "get_weather"

    async def test_required_calls_a_tool_every_time(self) -> None:
        context = [head(WEATHER), user("hi"), called("get_weather"), output("sun")]
        [item] = await respond(sim(), *context, tool_mode="required")
        assert item[1] == "get_weather"

    async def test_named_tools_are_demanded_and_no_others(self) -> None:
        assert (await call_of(SHELL, DELETE, tool_names=("delete_file",)))[1] == "delete_file"
        assert (await call_of(SHELL, DELETE, tool_mode="required", tool_names=("delete_file",)))[1] == "delete_file"

    async def test_a_named_tool_of_a_namespace_is_named_with_it(self) -> None:
        namespace = {"type": "namespace", "name": "files", "tools": [function("drop"), function("list_all")]}
        assert (await call_of(namespace, tool_names=("files.drop",)))[1] == "files.drop"
        assert await call_of(namespace, tool_names=("drop",)) == ("message", "You said: hi")
        plain = {"type": "namespace", "name": "functions", "tools": [function("drop")]}
        assert (await call_of(namespace, plain, tool_names=("drop",)))[1] == "drop"

    @pytest.mark.slow
    async def test_thousands_of_names_are_looked_up_at_once(self) -> None:
        tools = [function(f"tool_{number}") for number in range(20_000)]
        engine, context = sim(), [head(*tools), user("hi")]
        started = time.process_time()
        [item] = await respond(engine, *context, tool_names=tuple(f"tool_{at}" for at in range(19_999, -1, -1)))
        assert time.process_time() - started < 1
        assert item[1] == "tool_0"

    async def test_named_tools_are_not_called_after_an_output_unless_required(self) -> None:
        context = [head(DELETE), user("hi"), called("delete_file"), output("gone", name="delete_file")]
        assert await respond(sim(), *context, tool_names=("delete_file",)) == [
            ("message", "delete_file returned: gone")
        ]

    async def test_a_demand_that_nothing_meets_is_answered(self) -> None:
        assert await call_of(tool_mode="required") == ("message", "You said: hi")
        assert await call_of(SHELL, tool_names=("other",)) == ("message", "You said: hi")

    async def test_with_rehearsal_off_no_tool_is_ever_called(self) -> None:
        context = [head(SHELL), user("hi")]
        for params in ({}, {"tool_mode": "required"}, {"tool_names": ("exec_command",)}):
            assert await respond(sim(rehearse=False), *context, **params) == [("message", "You said: hi")]


class TestShells:
    @pytest.mark.parametrize(
        ("name", "key"),
        [
            ("shell", "command"),
            ("run_command", "cmd"),
            ("Bash", "script"),
            ("local_shell", "line"),
            ("execCommand", "cmd"),
        ],
    )
    async def test_the_command_stands_in_the_property_for_it(self, name: str, key: str) -> None:
        assert await call_of(function(name, [key], **{key: STRING})) == (
            "function_call",
            name,
            f'{{"{key}":"{COMMAND}"}}',
        )

    @pytest.mark.parametrize(
        ("schema", "command"),
        [
            (STRING, COMMAND),
            ({"type": ["string", "array"]}, COMMAND),
            ({}, COMMAND),
            ({"type": "array", "items": STRING}, ["bash", "-lc", COMMAND]),
            ({"anyOf": [{"type": "array", "items": STRING}, {"type": "null"}]}, ["bash", "-lc", COMMAND]),
        ],
    )
    async def test_it_is_a_line_or_an_argument_vector(self, schema: dict[str, Any], command: object) -> None:
        (_, _, arguments) = await call_of(function("shell", ["command"], command=schema))
        assert json.loads(arguments) == {"command": command}

    async def test_other_required_properties_are_filled_in(self) -> None:
        tool = function(
            "shell",
            ["command", "timeout", "note"],
            command=STRING,
            timeout={"type": "integer", "minimum": 10},
            note={"type": ["string", "null"]},
        )
        (_, _, arguments) = await call_of(tool)
        assert json.loads(arguments) == {"command": COMMAND, "timeout": 10, "note": None}

    async def test_a_shell_without_a_place_for_a_command_is_no_shell(self) -> None:
        assert await call_of(function("shell", ["a", "b"], a=STRING, b=STRING)) == ("message", "You said: hi")
        assert await call_of(function("terminal")) == ("message", "You said: hi")
        assert await call_of({"type": "function", "name": "bash", "parameters": None}) == ("message", "You said: hi")

    async def test_a_custom_shell_gets_the_plain_command(self) -> None:
        assert await call_of(custom("shell")) == ("custom_tool_call", "shell", COMMAND)

    @pytest.mark.parametrize(
        "fields",
        [
            {"description": "Runs raw JavaScript source text."},
            {"description": "Use `await tools.exec_command(...)`."},
            {"format": {"type": "grammar", "syntax": "lark", "definition": "start: /javascript/"}},
        ],
    )
    async def test_an_exec_that_takes_javascript_gets_a_program(self, fields: dict[str, Any]) -> None:
        namespace = {"type": "namespace", "name": "functions", "tools": [custom("exec", **fields), function("wait")]}
        assert await call_of(namespace) == ("custom_tool_call", "exec", JAVASCRIPT_COMMAND)

    def test_the_program_is_the_one_that_code_mode_runs(self) -> None:
        assert JAVASCRIPT_COMMAND == (
            'const r = await tools.exec_command({cmd: "echo hello from respserver"}); text(JSON.stringify(r));'
        )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYWORDS = ("type", "anyOf", "oneOf", "enum", "const", "default", "items", "$ref", "pattern", "minLength")


class TestAnySchema:
    """What is no schema at all must not break a turn: it is the client's tool, and the answer is ours."""

    @pytest.mark.parametrize(
        ("parameters", "called_with"),
        [
            ({"properties": {"command": {"anyOf": 5}}}, {"command": COMMAND}),
            ({"properties": {"command": {"oneOf": {"type": "array"}, "anyOf": [5, []]}}}, {"command": COMMAND}),
            ({"properties": {"command": {"type": [{}, "array"]}}}, {"command": ["bash", "-lc", COMMAND]}),
            ({"properties": {"command": 5}}, {"command": COMMAND}),
        ],
    )
    async def test_a_shell_is_still_called(self, parameters: dict[str, Any], called_with: dict[str, Any]) -> None:
        (_, _, arguments) = await call_of({"type": "function", "name": "bash", "parameters": parameters})
        assert json.loads(arguments) == called_with

    @pytest.mark.parametrize("required", [[{}], [[]], [5], {}, [None], ["y"]])
    async def test_a_required_property_that_is_none_is_no_place_for_a_command(self, required: Any) -> None:
        tool = {"type": "function", "name": "bash", "parameters": {"properties": {"x": 5}, "required": required}}
        assert await call_of(tool) == ("message", "You said: hi")

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["bash", "get_it"])
    @given(
        given=st.fixed_dictionaries({}, optional={"properties": JSON, "required": JSON, "allOf": JSON})
        | st.dictionaries(st.sampled_from(KEYWORDS), JSON),
        inner=JSON | st.dictionaries(st.sampled_from(KEYWORDS), JSON),
    )
    def test_a_call_carries_an_object_whatever_the_schema(self, name: str, given: dict[str, Any], inner: Any) -> None:
        for parameters in (given, {"properties": {"command": inner, **given}, "required": ["command"], "anyOf": given}):
            tool = {"type": "function", "name": name, "parameters": parameters}
            [item] = trio.run(respond, sim(), head(tool), user("hi"))
            if item[0] == "function_call":
                assert isinstance(json.loads(item[2]), dict)

    @pytest.mark.parametrize(
        "parameters", ["5", "[]", '"x"', '{"const":1' + "0" * 4000 + "}", '{"const":1' + "0" * 5000 + "}"]
    )
    async def test_numbers_without_end_and_schemas_that_are_no_objects_are_passed_over(self, parameters: str) -> None:
        raw = f'[{{"type":"function","name":"get_it","parameters":{parameters}}}]'.encode()
        context = template().tokenise(template().head(None, raw))
        assert await respond(sim(), context, user("hi")) == [("function_call", "get_it", "{}")]


class TestArguments:
    async def test_they_are_what_the_schema_accepts(self) -> None:
        tool = function(
            "get_weather",
            ["city", "day", "unit"],
            city=STRING,
            day={"type": "string", "format": "date"},
            unit={"enum": ["c", "f"]},
            wind={"type": "boolean"},
        )
        (_, _, arguments) = await call_of(tool)
        jsonschema.validate(json.loads(arguments), tool["parameters"])
        assert json.loads(arguments) == {"city": "example", "day": "2025-01-01", "unit": "c"}

    async def test_null_leaves_an_argument_out(self) -> None:
        (_, _, arguments) = await call_of(function("get_it", ["a"], a={"anyOf": [STRING, {"type": "null"}]}))
        assert arguments == '{"a":null}'

    @pytest.mark.parametrize("parameters", [None, True, {"type": "array"}, {"enum": [1]}])
    async def test_they_are_an_object_whatever_the_schema(self, parameters: Any) -> None:
        tool = {"type": "function", "name": "get_it", "parameters": parameters}
        assert isinstance(json.loads((await call_of(tool))[2]), dict)

    async def test_a_custom_tool_that_reads_gets_a_text(self) -> None:
        assert await call_of(custom("search")) == ("custom_tool_call", "search", "hello from respserver")


class TestAnswers:
    async def test_the_output_is_quoted_with_the_tools_name(self) -> None:
        context = [head(SHELL), user("hi"), called("exec_command"), output("hello", name="exec_command")]
        assert await respond(sim(), *context) == [("message", "exec_command returned: hello")]

    async def test_all_outputs_since_it_last_spoke_are_quoted(self) -> None:
        context = [user("hi"), called("a"), output("0", name="a"), called("a"), called("b")]
        outputs = [output("1", "2", name="a"), output("3", name="b", kind="custom_tool_call_output")]
        assert await respond(sim(), *context, *outputs) == [("message", "a returned: 1\n2\n\nb returned: 3")]

    async def test_an_output_without_a_name_is_the_tools(self) -> None:
        assert await respond(sim(), output("x", name="")) == [("message", "The tool returned: x")]

    @pytest.mark.parametrize("letter", ["a", "é", "😀"])
    async def test_quotes_are_bounded(self, letter: str) -> None:
        assert await respond(sim(), user(letter * QUOTED)) == [("message", f"You said: {letter * QUOTED}")]
        cut = [("message", f"You said: {letter * QUOTED}…")]
        assert await respond(sim(), user(letter * (QUOTED + 1))) == cut
        assert await respond(sim(), user(letter * QUOTED * 5)) == cut

    async def test_parts_together_are_bounded_as_well(self) -> None:
        [(_, text)] = await respond(sim(), output("a" * QUOTED, "b", name="t"))
        assert text == "t returned: " + "a" * QUOTED + "…"

    async def test_the_last_message_is_the_one_that_is_answered(self) -> None:
        assert await respond(sim(), user("one"), user("two", role="developer")) == [("message", "You said: two")]

    async def test_without_a_new_message_the_last_users_is_answered(self) -> None:
        assert await respond(sim(), user("one"), said("hello")) == [("message", "You said: one")]

    async def test_without_any_message_it_greets(self) -> None:
        assert await respond(sim()) == [("message", "Hello from respserver.")]

    async def test_a_schema_is_answered_with_json_that_it_accepts(self) -> None:
        schema = {
            "type": "object",
            "properties": {"steps": {"type": "array", "items": STRING, "minItems": 2}, "done": {"type": "boolean"}},
            "required": ["steps", "done"],
            "additionalProperties": False,
        }
        for context in ([user("hi")], [user("hi"), called("a"), output("x")]):
            [(kind, text)] = await respond(sim(), *context, text_schema=schema)
            assert kind == "message"
            jsonschema.validate(json.loads(text), schema)

    async def test_a_schema_does_not_keep_it_from_calling_a_tool(self) -> None:
        assert await call_of(SHELL, text_schema={"type": "object"}) == CALLED_SHELL

    async def test_json_object_is_answered_with_an_object(self) -> None:
        [(_, text)] = await respond(sim(), user('say "x"'), json_object=True)
        assert json.loads(text) == {"answer": 'You said: say "x"'}

    async def test_plain_answers_follow_the_format_too(self) -> None:
        [(_, text)] = await respond(sim(rehearse=False), user("hi"), text_schema={"type": "integer"})
        assert text == "1"
