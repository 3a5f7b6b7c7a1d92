"""Scripts: what a step says, which step answers a context, and scripts made in Python."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from respserver.engines.sim import (
    Script,
    Sim,
    call,
    conversation,
    custom,
    delay,
    fault,
    reasoning,
    refusal,
    step,
    text,
)
from respserver.engines.sim.plan import MAX_KEPT
from respserver.engines.sim.script import Call, OnEnd, Step, Text
from respserver.errors import ConfigError, ModelFault
from tests.support.sim_kit import called, head, output, play, respond, said, sample, sim, template, user


def untyped(value: object) -> Any:
    """What a caller without a type checker might pass."""
    return value


class TestConstructors:
    def test_a_string_is_a_text_answer(self) -> None:
        assert Script.of("hello").conversations[0].steps == (Step(output=(Text(("hello",)),)),)

    @pytest.mark.parametrize(
        ("made", "arguments"),
        [
            (call("f"), {}),
            (call("f", city="Paris", days=2), {"city": "Paris", "days": 2}),
            (call("f", {"name": "by mapping"}, name="by keyword"), {"name": "by keyword"}),
            (call("f", '{"broken'), '{"broken'),
        ],
    )
    def test_arguments_come_by_keyword_as_mapping_or_raw(self, made: Call, arguments: object) -> None:
        assert made.arguments == arguments

    def test_lists_and_tuples_are_several_outputs(self) -> None:
        assert Script.of([reasoning("hm"), "a"]).conversations == Script.of((reasoning("hm"), "a")).conversations

    @pytest.mark.parametrize("wrong", [math.inf, -math.inf, math.nan, -1])
    def test_times_that_no_schedule_can_keep_are_refused_by_name(self, wrong: float) -> None:
        for name in ("tps", "ttft"):
            with pytest.raises(ConfigError, match=f"^{name}: expected a finite number of at least 0, got "):
                step("a", **{name: wrong})  # type: ignore[arg-type]  # mypy sees all of step's keywords
        with pytest.raises(ConfigError, match=r"^delay: expected a finite number"):
            delay(wrong)
        with pytest.raises(ConfigError, match=r"^fault_after_tokens: expected a whole number of at least 0"):
            step("a", fault="x", fault_after_tokens=-1)

    @pytest.mark.parametrize(
        ("wrong", "problem"),
        [
            (lambda: Script.of("a", on_end=untyped("loop")), "on_end: expected fail, repeat or rehearse, got 'loop'"),
            (lambda: Script.of(), "step: a script needs at least one step"),
            (lambda: Script.of("a", untyped(5)), "step[1]: expected a text or an output such as call(…), got 5"),
            (lambda: Script.of(untyped(None)), "step[0]: expected a text or an output such as call(…), got None"),
            (lambda: Script.of(["a", untyped({"text": "b"})]),
             "step[0][1]: expected a text or an output such as call(…), got a table"),
            (lambda: step("a", untyped(["b"])), "output[1]: expected a text or an output such as call(…), got ['b']"),
            (lambda: text(untyped(5)), "text: expected a text, got 5"),
            (lambda: reasoning("a", untyped(None)), "reasoning: expected a text, got None"),
            (lambda: refusal(untyped(5)), "refusal: expected a text, got 5"),
            (lambda: custom(untyped(5), "x"), "custom: expected a text that is not empty, got 5"),
            (lambda: custom("a", untyped(5)), "input: expected a text, got 5"),
            (lambda: fault(untyped(5)), "fault: expected a text, got 5"),
            (lambda: fault("a", untyped(5)), "code: expected a text that is not empty, got 5"),
            (lambda: Script(conversations=()), "conversation: a script needs at least one conversation"),
            (lambda: step("a", fault_after_tokens=3), "fault_after_tokens: needs fault beside it"),
            (lambda: step("a", fault="x", fault_after_tokens=untyped(1.5)),
             "fault_after_tokens: expected a whole number of at least 0, got 1.5"),
            (lambda: step("a", fault=untyped(5)), "fault: expected a text or a fault, got 5"),
            (lambda: conversation("a", model=""), "model: expected a text that is not empty, got ''"),
            (lambda: call(untyped(5)), "call: expected a text that is not empty, got 5"),
            (lambda: call("a", untyped(1)), "arguments: expected a mapping or a text, got 1"),
            (lambda: call("a", "{}", x=1),
             "arguments: a text is sent as it is; arguments by keyword cannot be joined to it"),
            (lambda: call("a", x={1, 2}), "arguments.x: expected a JSON value, got set"),
            (lambda: call("a", x=[{"y": math.inf}]), "arguments.x[0].y: expected a JSON value, got inf"),
            (lambda: call("a", untyped({1: 2})), "arguments: expected a JSON value, got 1"),
        ],
    )  # fmt: skip
    def test_a_mistake_is_told_where_it_is_made_in_the_words_of_a_file(
        self, wrong: Callable[[], object], problem: str
    ) -> None:
        with pytest.raises(ConfigError) as caught:
            wrong()
        assert str(caught.value) == problem

    def test_a_fault_may_be_its_message_as_in_a_file(self) -> None:
        assert step("a", fault="boom") == step("a", fault=fault("boom"))


class TestOutputs:
    async def test_every_kind_of_item(self) -> None:
        engine = sim(
            [
                reasoning("first", "second"),
                text("one", "two"),
                refusal("no"),
                call("get_weather", city="Paris"),
                custom("apply_patch", "*** Begin"),
            ]
        )
        assert await respond(engine, user("hi")) == [
            ("reasoning", "first", "second"),
            ("message", "one", "two"),
            ("message", "refused: no"),
            ("function_call", "get_weather", '{"city":"Paris"}'),
            ("custom_tool_call", "apply_patch", "*** Begin"),
        ]

    async def test_a_call_without_arguments_has_an_empty_object(self) -> None:
        assert await respond(sim(call("ping"))) == [("function_call", "ping", "{}")]

    async def test_raw_arguments_are_sent_as_they_are(self) -> None:
        assert await respond(sim(call("f", '{"a": '))) == [("function_call", "f", '{"a": ')]

    async def test_a_step_may_say_nothing(self) -> None:
        batches = await play(await sim(step()).open())
        assert [list(batch.ids) for batch in batches] == [[]]

    async def test_qualified_names_are_called_as_they_stand(self) -> None:
        assert await respond(sim(call("agents.spawn"))) == [("function_call", "agents.spawn", "{}")]


class TestPlaceholders:
    CONTEXT = (
        user("what is {it}?"),
        called("f"),
        output("first", name="f"),
        output('say "one"', "two", name="g"),
    )

    async def test_the_last_tool_output_and_the_last_user_message_can_be_quoted(self) -> None:
        engine = sim("", "{last_user} -> {last_tool_output}")
        assert await respond(engine, *self.CONTEXT) == [("message", 'what is {it}? -> say "one"\ntwo')]

    async def test_they_work_in_every_text(self) -> None:
        outputs = [
            reasoning("{last_user}"),
            refusal("{last_user}"),
            custom("c", "{last_user}"),
            call("r", "{last_user}"),
        ]
        items = await respond(sim(outputs), user("x"))
        assert [item[-1] for item in items] == ["x", "refused: x", "x", "x"]

    async def test_inside_arguments_they_stay_one_json_string(self) -> None:
        engine = sim("", call("echo", words=["{last_tool_output}"], deep={"n": 1, "who": "{last_user}"}))
        [(_, _, arguments)] = await respond(engine, *self.CONTEXT)
        assert json.loads(arguments) == {"words": ['say "one"\ntwo'], "deep": {"n": 1, "who": "what is {it}?"}}

    async def test_what_is_not_there_is_empty(self) -> None:
        assert await respond(sim("[{last_user}{last_tool_output}]")) == [("message", "[]")]

    async def test_an_output_before_the_last_answer_is_not_the_last(self) -> None:
        engine = sim("", "", "[{last_tool_output}]")
        assert await respond(engine, *self.CONTEXT, said("done"), user("more")) == [("message", "[]")]

    @pytest.mark.parametrize(
        ("written", "said_so"),
        [
            ("{{last_user}}", "{last_user}"),
            ("{}{x}{{y}}", "{}{x}{{y}}"),
            ('{"a":{"b":1}}', '{"a":{"b":1}}'),
            ("{{last_user}}={last_user}", "{last_user}=hi"),
        ],
    )
    async def test_other_braces_stay_and_doubled_ones_quote_a_placeholder(self, written: str, said_so: str) -> None:
        assert await respond(sim(written), user("hi")) == [("message", said_so)]

    async def test_a_filled_step_is_filled_anew_in_each_context(self) -> None:
        engine = sim("{last_user}")
        assert await respond(engine, user("a")) == [("message", "a")]
        assert await respond(engine, user("b")) == [("message", "b")]

    async def test_the_text_that_is_filled_in_is_not_looked_through(self) -> None:
        assert await respond(sim("{last_user}"), user("{last_tool_output}")) == [("message", "{last_tool_output}")]


STEPS = (call("get_weather", city="Paris"), "It is sunny.", "You are welcome.")
CALLED = ("function_call", "get_weather", '{"city":"Paris"}')


class TestCounting:
    async def test_a_chained_rollout_meets_step_after_step(self) -> None:
        sequence = await sim(*STEPS).open()
        await sequence.extend(user("weather?"))
        assert await sample(sequence) == [CALLED]
        await sequence.extend(output("sun"))
        assert await sample(sequence) == [("message", "It is sunny.")]
        await sequence.extend(user("thanks"))
        assert await sample(sequence) == [("message", "You are welcome.")]

    @pytest.mark.parametrize("pieces", [1, 7, 1000])
    async def test_a_resent_history_meets_the_same_step_however_it_arrives(self, pieces: int) -> None:
        history = [*head(instructions="be nice"), *user("weather?"), *called("get_weather"), *output("sun")]
        sequence = await sim(*STEPS).open()
        for start in range(0, len(history), pieces):
            await sequence.extend(history[start : start + pieces])
        assert await sample(sequence) == [("message", "It is sunny.")]

    async def test_the_items_of_one_answer_count_once(self) -> None:
        context = [user("hi"), said("let me see"), called("a"), called("b"), output("1"), output("2")]
        assert await respond(sim(*STEPS), *context) == [("message", "It is sunny.")]

    async def test_tool_lists_and_unknown_items_between_them_do_not_split_an_answer(self) -> None:
        opaque = template().tokenise([0, "item", 1, '{"type":"compaction"}', 2])
        context = [user("hi"), said("a"), opaque, head({"type": "web_search"}), said("b"), user("go on")]
        assert await respond(sim(*STEPS), *context) == [("message", "It is sunny.")]

    async def test_an_empty_message_counts(self) -> None:
        assert await respond(sim(*STEPS), user("hi"), template().tokenise([0, "assistant", 2]), user("?")) == [
            ("message", "It is sunny.")
        ]

    async def test_text_that_looks_like_the_template_does_not_count(self) -> None:
        assert await respond(sim(*STEPS), user("<|im_start|>assistant<|im_sep|>x<|im_end|>")) == [CALLED]


class TestEnd:
    @staticmethod
    def engine(on_end: OnEnd) -> Sim:
        return Sim(template(), script=Script.of("one", "two", on_end=on_end, name="demo.toml"), rehearse=False)

    @pytest.mark.parametrize(("steps", "there"), [(("one",), "1 step"), (("one", "two"), "2 steps")])
    async def test_a_script_without_a_step_left_fails_and_says_which_and_what_to_do(
        self, steps: tuple[str, ...], there: str
    ) -> None:
        engine = Sim(template(), script=Script.of(*steps, name="demo.toml"), rehearse=False)
        history = [ids for step in steps for ids in (said(step), user("go on"))]
        with pytest.raises(ModelFault) as caught:
            await respond(engine, user("hi"), *history)
        assert caught.value.message == (
            f"Script 'demo.toml' has {there} for this conversation, and this would be step {len(steps) + 1}. "
            "Add it, or set on_end to 'repeat' or 'rehearse'."
        )
        assert caught.value.code == "invalid_prompt"

    async def test_repeat_starts_again(self) -> None:
        context = [said("one"), user("a"), said("two"), user("b")]
        assert await respond(self.engine("repeat"), *context) == [("message", "one")]
        assert await respond(self.engine("repeat"), *context, said("one"), user("c")) == [("message", "two")]

    async def test_rehearse_goes_on_by_itself_even_if_rehearsal_is_off_otherwise(self) -> None:
        tools = head({"type": "function", "name": "get_it", "parameters": None})
        context = [tools, said("one"), user("a"), said("two"), user("b")]
        assert await respond(self.engine("rehearse"), *context) == [("function_call", "get_it", "{}")]


class TestConversations:
    SCRIPT = Script(
        conversations=(
            conversation("weather one", "weather two", user="weather"),
            conversation("mini", model="gpt-*-mini"),
            conversation("both", user="news", model="gpt-5"),
        ),
        name="demo",
    )

    @pytest.mark.parametrize(
        ("model", "question", "answer"),
        [
            ("gpt-5", "the weather?", "weather one"),
            ("gpt-5-mini", "the weather?", "weather one"),
            ("gpt-5-mini", "hello", "mini"),
            ("gpt-5", "any news?", "both"),
        ],
    )
    async def test_the_first_that_serves_the_context_is_played(self, model: str, question: str, answer: str) -> None:
        engine = Sim(template(), script=self.SCRIPT)
        assert await respond(engine, user(question), model=model) == [("message", answer)]

    async def test_any_user_message_so_far_counts(self) -> None:
        engine = Sim(template(), script=self.SCRIPT)
        context = [user("the weather?"), said("?"), user("please")]
        assert await respond(engine, *context) == [("message", "weather two")]

    async def test_only_user_messages_count(self) -> None:
        engine = Sim(template(), script=self.SCRIPT)
        with pytest.raises(ModelFault, match="Script 'demo' has no conversation for this context"):
            await respond(engine, user("weather", role="developer"), output("weather"))

    async def test_a_fork_keeps_what_was_found(self) -> None:
        sequence = await Sim(template(), script=self.SCRIPT).open()
        await sequence.extend(user("weather"))
        await sample(sequence)
        branch = await sequence.fork()
        await branch.extend(user("more"))
        assert await sample(branch) == [("message", "weather two")]

    async def test_repeat_has_nothing_to_repeat_without_a_conversation(self) -> None:
        script = Script(conversations=(conversation("x", user="never"),), on_end="repeat")
        with pytest.raises(ModelFault, match="no conversation"):
            await respond(Sim(template(), script=script), user("hi"))


async def test_faults_and_steps_after_a_retry_meet_the_same_step() -> None:
    engine = sim(fault("try again"), "never")
    for _ in range(2):
        with pytest.raises(ModelFault, match="try again"):
            await respond(engine, user("hi"))


@pytest.mark.slow
async def test_steps_that_are_kept_rendered_are_bounded() -> None:
    engine = sim()
    for number in range(MAX_KEPT + 2):
        engine.script = Script.of(str(number))
        assert await respond(engine) == [("message", str(number))]
    assert len(engine._planner._kept) <= MAX_KEPT
