"""The script format: every key, and every mistake with its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from respserver.engines.sim import load_script, parse_script, script_file
from respserver.engines.sim.script import (
    Call,
    Conversation,
    Custom,
    Delay,
    Fault,
    Output,
    Reasoning,
    Refusal,
    Script,
    Step,
    Text,
)
from respserver.errors import ConfigError

DOCS = Path(__file__).parent.parent / "docs" / "scripts.md"


def steps_of(text: str) -> tuple[Step, ...]:
    return parse_script(text, "toml").conversations[0].steps


@pytest.mark.parametrize(
    ("table", "output"),
    [
        ('reasoning = "hm"', Reasoning(("hm",))),
        ('reasoning = ["a", "b"]', Reasoning(("a", "b"))),
        ('text = "a"', Text(("a",))),
        ('text = ["a", "b"]', Text(("a", "b"))),
        ('refusal = "no"', Refusal("no")),
        ('call = "f"', Call("f", {})),
        ('call = "f", arguments = {city = "Paris"}', Call("f", {"city": "Paris"})),
        ('call = "f", arguments = "{broken"', Call("f", "{broken")),
        ('custom = "c", input = "x"', Custom("c", "x")),
        ("delay = 2", Delay(2.0)),
        ('fault = "broke"', Fault("broke", "server_error")),
        ('fault = "broke", code = "overloaded"', Fault("broke", "overloaded")),
    ],
)
def test_each_output_in_a_list_and_as_a_shorthand(table: str, output: Output) -> None:
    assert steps_of(f"[[step]]\noutput = [{{{table}}}]") == (Step(output=(output,)),)
    shorthand = steps_of("[[step]]\n" + re.sub(r", (?=\w+ =)", "\n", table))
    if isinstance(output, Fault):
        assert shorthand == (Step(output=(), fault=output),)
    else:
        assert shorthand == (Step(output=(output,)),)


def test_shorthands_side_by_side_are_played_in_a_fixed_order() -> None:
    [step] = steps_of('[[step]]\ncall = "f"\ntext = "a"\nreasoning = "hm"\ndelay = 1')
    assert step.output == (Delay(1.0), Reasoning(("hm",)), Text(("a",)), Call("f", {}))


def test_a_step_has_its_own_pace_and_a_fault_inside_its_output() -> None:
    [step] = steps_of(
        '[[step]]\noutput = [{text = "a"}]\ntps = 65\nttft = 0.5\nfault = "x"\ncode = "c"\nfault_after_tokens = 3'
    )
    assert step == Step(output=(Text(("a",)),), tps=65.0, ttft=0.5, fault=Fault("x", "c"), fault_after_tokens=3)


def test_an_empty_output_says_nothing() -> None:
    assert steps_of("[[step]]\noutput = []") == (Step(output=()),)


def test_conversations_have_conditions() -> None:
    script = parse_script(
        '[[conversation]]\nwhen = {user = "weather", model = "gpt-*"}\n[[conversation.step]]\ntext = "a"\n'
        '[[conversation]]\nstep = [{text = "b"}]',
        "toml",
    )
    assert script.conversations == (
        Conversation(steps=(Step(output=(Text(("a",)),)),), user="weather", model="gpt-*"),
        Conversation(steps=(Step(output=(Text(("b",)),)),)),
    )


def test_json_reads_the_same() -> None:
    text = '{"on_end": "repeat", "step": [{"text": "a"}, {"output": [{"call": "f", "arguments": {"n": null}}]}]}'
    assert parse_script(text, "json", "s") == Script(
        conversations=(Conversation(steps=(Step(output=(Text(("a",)),)), Step(output=(Call("f", {"n": None}),)))),),
        on_end="repeat",
        name="s",
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "s.toml: x: unknown key"),
        ("", "s.toml: a script has either [[step]] or [[conversation]] tables"),
        (
            '[[step]]\ntext = "a"\n[[conversation]]\nstep = [{text = "a"}]',
            "s.toml: a script has either [[step]] or [[conversation]] tables",
        ),
        ("step = []", "s.toml: step: a script needs at least one step"),
        ("[[conversation]]", "s.toml: conversation[0].step: is missing"),
        ("[[step]]\ntext = 1", "s.toml: step[0].text: expected a text or a list of texts, got 1"),
        ("[[step]]\ntext = []", "s.toml: step[0].text: expected a text or a list of texts, got []"),
        ('[[step]]\ntext = "a"\nfoo = 1', "s.toml: step[0].foo: unknown key"),
        ("[[step]]\ndelay = -1", "s.toml: step[0].delay: expected a finite number of at least 0, got -1"),
        ('[[step]]\ntext = "a"\ntps = inf', "s.toml: step[0].tps: expected a finite number of at least 0, got inf"),
        ('[[step]]\ntext = "a"\nttft = inf', "s.toml: step[0].ttft: expected a finite number of at least 0, got inf"),
        ('[[step]]\ntext = "a"\nttft = nan', "s.toml: step[0].ttft: expected a finite number of at least 0, got nan"),
        ('[[step]]\ntext = "a"\ntps = -inf', "s.toml: step[0].tps: expected a finite number of at least 0, got -inf"),
        (
            "[[step]]\noutput = [{delay = inf}]",
            "s.toml: step[0].output[0].delay: expected a finite number of at least 0, got inf",
        ),
        ('[[step]]\ntext = "a"\ntps = true', "s.toml: step[0].tps: expected a finite number of at least 0, got True"),
        (
            "[[step]]",
            "s.toml: step[0]: expected output or one of delay, reasoning, text, refusal, call, custom, fault",
        ),
        ('[[step]]\ninput = "a"', "s.toml: step[0].input: needs custom beside it"),
        ('[[step]]\ncustom = "a"', "s.toml: step[0].custom: needs input beside it"),
        ('[[step]]\ntext = "a"\narguments = {}', "s.toml: step[0].arguments: needs call beside it"),
        ('[[step]]\ntext = "a"\ncode = "c"', "s.toml: step[0].code: needs fault beside it"),
        (
            '[[step]]\ntext = "a"\nfault_after_tokens = 1',
            "s.toml: step[0].fault_after_tokens: needs fault beside it",
        ),
        (
            '[[step]]\ntext = "a"\noutput = []',
            "s.toml: step[0].text: stands beside output; put it into the list",
        ),
        (
            '[[conversation]]\nstep = [{text = "a"}, {output = [{text = "a"}, {call = 1}]}]',
            "s.toml: conversation[0].step[1].output[1].call: expected a text that is not empty, got 1",
        ),
        (
            '[[step]]\noutput = [{text = "a", call = "b"}]',
            "s.toml: step[0].output[0]: expected one of delay, reasoning, text, refusal, call, custom, fault; "
            "got text and call",
        ),
        (
            "[[step]]\noutput = [{}]",
            "s.toml: step[0].output[0]: expected one of delay, reasoning, text, refusal, call, custom, fault; got none",
        ),
        (
            '[[step]]\noutput = [{text = "a", input = "b"}]',
            "s.toml: step[0].output[0].input: needs custom beside it",
        ),
        (
            '[[conversation]]\nwhen = {usr = "a"}\nstep = [{text = "a"}]',
            "s.toml: conversation[0].when.usr: unknown key; did you mean user?",
        ),
        (
            'on_end = "stop"\n[[step]]\ntext = "a"',
            "s.toml: on_end: expected fail, repeat or rehearse, got 'stop'",
        ),
        ("[[steps]]", "s.toml: steps: unknown key; did you mean step?"),
        ('[[step]]\ntxt = "a"', "s.toml: step[0].txt: unknown key; did you mean text?"),
        ('[step]\ntext = "a"', "s.toml: step: write [[step]], with two brackets"),
        (
            '[[conversation]]\n[conversation.step]\ntext = "a"',
            "s.toml: conversation[0].step: write [[conversation.step]], with two brackets",
        ),
        ("conversation = []", "s.toml: conversation: a script needs at least one conversation"),
        ("[[conversation]]\nstep = []", "s.toml: conversation[0].step: a script needs at least one step"),
        (
            '[[step]]\ncall = "f"\narguments = {a = [1, nan]}',
            "s.toml: step[0].arguments.a[1]: expected a JSON value, got nan",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_script(text, "toml", "s.toml")
    assert str(caught.value) == message


def test_text_that_is_not_toml_or_json_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^s\.toml: not TOML: "):
        parse_script("a = [", "toml", "s.toml")
    with pytest.raises(ConfigError, match=r"^s\.json: not JSON: "):
        parse_script("{", "json", "s.json")
    with pytest.raises(ConfigError, match=r"^s\.json: step: expected a list of tables, got a table$"):
        parse_script('{"step": {"text": "a"}}', "json", "s.json")
    with pytest.raises(ConfigError, match=r"^s\.json: expected a table, got \[\]$"):
        parse_script("[]", "json", "s.json")


def test_files_are_read_by_their_ending(tmp_path: Path) -> None:
    for name, text in (("a.toml", '[[step]]\ntext = "é"'), ("b.JSON", '{"step": [{"text": "é"}]}')):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        script = load_script(path)
        assert script.name == str(path)
        assert script.conversations[0].steps[0].output == (Text(("é",)),)


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        load_script(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=r"a script's name ends with"):
        load_script(tmp_path / "script.yaml")
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'[[step]]\ntext = "\xe9"')
    with pytest.raises(ConfigError, match=r"latin\.toml: cannot be read"):
        load_script(latin)


@pytest.mark.parametrize(
    "block", re.findall(r"```(toml|json)\n(.*?)```", DOCS.read_text(), re.DOTALL), ids=lambda b: b[0]
)
def test_the_examples_of_the_documentation_are_scripts(block: tuple[str, str]) -> None:
    format, text = block
    assert parse_script(text, "toml" if format == "toml" else "json").conversations


@pytest.mark.parametrize("text", re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL))
def test_the_python_examples_run(text: str) -> None:
    exec(compile(text, str(DOCS), "exec"), {})


def test_every_key_is_documented() -> None:
    text = DOCS.read_text()
    # The tables are no public names, and yet they are what users write.
    tables = (script_file._Said, script_file._Step, script_file._When, script_file._Conversation, script_file._File)
    for table in tables:
        for key in table.__struct_fields__:
            assert f"`{key}`" in text, key
