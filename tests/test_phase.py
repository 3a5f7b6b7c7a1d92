"""A message's ``phase``: said by the model, seen by it again, and nowhere unless somebody says one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respserver.engines.sim import Script, call, parse_script, refusal, text
from respserver.engines.sim.script import Text
from respserver.errors import ConfigError
from respserver.schema.items import OutputMessage, OutputText
from respserver.tokens.parse import ItemBegan, OutputParser
from respserver.tokens.render import message_pieces
from respserver.tokens.roles import PHASES, role_text
from respserver.tokens.special import Special
from tests.support.live import Frame, Wire, calls_of, output, post, stream, text_of, tool, user
from tests.support.pure import assistant, items
from tests.support.sdk import check_event
from tests.support.sim_kit import template
from tests.support.spy import Spy

TOOLS = [tool("look")]
PHASED = [text("On it.", phase="commentary"), call("look", n=1)]


def begun(role: str, *marks: int) -> list[ItemBegan]:
    parser = OutputParser(template().token_bytes)
    deltas = parser.feed(template().tokenise([Special.START, role, *marks, Special.END]))
    return [delta for delta in deltas if isinstance(delta, ItemBegan)]


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("mark", [(), (Special.SEP,), (Special.REFUSAL,)], ids=["empty", "text", "refusal"])
def test_the_parser_reads_what_the_template_wrote(phase: str, mark: tuple[int, ...]) -> None:
    assert begun(role_text("assistant", phase), *mark) == [ItemBegan("message", phase=phase)]


@pytest.mark.parametrize(
    "role", ["assistant", "user commentary", "assistant other", "assistant commentary!", "commentary"]
)
def test_any_other_role_says_no_phase(role: str) -> None:
    assert begun(role, Special.SEP) == [ItemBegan("message")]


@pytest.mark.parametrize("mark", [Special.THINK, Special.CALL])
def test_only_messages_have_one(mark: Special) -> None:
    assert [began.phase for began in begun("assistant commentary", mark)] == [""]


def test_a_phase_is_its_own_messages_alone() -> None:
    first = message_pieces(role_text("assistant", "commentary"), [("text", "a")])
    bare = [Special.SEP, "b", Special.END]
    parser = OutputParser(template().token_bytes)
    plain = message_pieces("assistant", [("text", "c")])
    deltas = parser.feed(template().tokenise([*first, *bare, *plain, *first, *plain[:2], *first]))
    phases = [delta.phase for delta in deltas if isinstance(delta, ItemBegan)]
    assert phases == ["commentary", "", "", "commentary", "commentary"]


@given(st.sampled_from(PHASES), st.text())
def test_what_was_made_and_what_is_replayed_of_it_render_alike(phase: Any, said: str) -> None:
    made = OutputMessage(id="msg_1", status="completed", content=[OutputText(text=said)], phase=phase)
    (replayed,) = items(assistant(said, phase=phase))
    assert template().item(made) == template().item(replayed)


def test_a_user_message_has_no_phase_for_the_model() -> None:
    (plain,), (labelled,) = items(user("hi")), items({**user("hi"), "phase": "commentary"})
    assert template().item(plain) == template().item(labelled)


@pytest.mark.parametrize("transport", ["websocket", "sse"])
async def test_a_phase_that_the_model_says_is_on_its_message_from_the_start(
    serve: Any, connect: Any, transport: str
) -> None:
    server = await serve(Script.of(PHASED))
    wire: Wire = await connect(server)
    frames = await (
        stream(server, input="go", tools=TOOLS) if transport == "sse" else wire.turn(input="go", tools=TOOLS)
    )
    shown = [frame["item"] for frame in frames if "item" in frame and frame["item"]["type"] == "message"]
    assert [item["phase"] for item in (*shown, frames[-1]["response"]["output"][0])] == ["commentary"] * 3
    for frame in frames:
        check_event(frame)


async def test_the_model_sees_the_phases_of_its_history_on_every_road(serve: Any, connect: Any) -> None:
    spy = Spy(Script.of(PHASED, text("It is.", phase="final_answer"), "And on.", on_end="repeat"))
    server = await serve(engine=spy)
    wire: Wire = await connect(server)
    first = await wire.completed(input="go", tools=TOOLS)
    outputs = [output(calls_of(first)[0])]
    second = await wire.completed(input=outputs, previous_response_id=first["id"], tools=TOOLS)
    assert [item["phase"] for item in second["output"]] == ["final_answer"]
    await wire.completed(input="more", previous_response_id=second["id"], tools=TOOLS)
    assert "\nassistant commentary: On it.\n" in spy.contexts[-1]
    assert "\nassistant final_answer: It is.\n" in spy.contexts[-1]
    history: list[Frame] = [user("go"), *first["output"], *outputs, *second["output"], user("more")]
    answer = await post(server, input=history, tools=TOOLS, store=False)
    assert text_of(answer.json()) == "And on."  # the script meets the same step
    assert spy.contexts[-1] == spy.contexts[-2]


async def test_a_phase_that_the_api_does_not_have_is_refused_by_place(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve())
    error = (await wire.refused(input=[assistant("a", phase="thinking"), user("b")]))["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "input[0].phase")
    await wire.completed(input=[assistant("a", phase=None), user("b")])


async def test_without_a_phase_there_is_no_such_key(serve: Any, connect: Any) -> None:
    wire: Wire = await connect(await serve(Script.of([text("a"), refusal("b")])))
    assert "phase" not in str(await wire.turn(input="go"))


def test_a_script_file_says_it_beside_text() -> None:
    (step,) = parse_script('[[step]]\ntext = "a"\nphase = "commentary"', "toml").conversations[0].steps
    assert step.output == (Text(("a",), "commentary"),)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ('text = "a"\nphase = "thinking"', "phase: expected"),
        ('refusal = "a"\nphase = "commentary"', "phase: needs text beside it"),
    ],
)
def test_a_script_file_is_told_what_is_wrong_with_its_phase(table: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_script(f"[[step]]\n{table}", "toml")


def test_a_script_in_python_is_told_too() -> None:
    with pytest.raises(ConfigError, match="phase"):
        text("a", phase="thinking")  # type: ignore[arg-type]  # what a caller without a type checker may write
