"""From a context to the ids that the embedded model will say: which step, filled in, rendered.

Choosing and rendering happen at once when a run begins; playing the plan out is ``engine.py``'s. The step is counted
from the context alone, so that chained turns, resent histories, forks and suspended rollouts all meet the same step.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from respserver.engines.base import SamplingParams
from respserver.engines.sim.context import Context
from respserver.engines.sim.promised import check_said
from respserver.engines.sim.rehearse import answer, rehearse
from respserver.engines.sim.script import (
    Call,
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
from respserver.errors import ModelFault
from respserver.tokens.render import Pieces, Template, call_pieces, message_pieces, reasoning_pieces
from respserver.tokens.roles import OUTPUT_ROLES, role_text

MAX_KEPT = 1024
"""Rendered steps that are kept; a server that is given script after script must not grow."""


class Plan(msgspec.Struct, frozen=True):
    """One run, decided."""

    ids: list[int]
    delays: tuple[tuple[int, float], ...] = ()
    """Silences: before which id, and for how many seconds."""
    fault: tuple[int, Fault] | None = None
    """Where the run breaks; ids behind that place are never said."""
    tps: float | None = None
    ttft: float | None = None


class ScriptReader:
    """Which conversation of a script a context belongs to; each user message is looked at once."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self._seen = 0
        self._matched: set[int] = set()

    def step(self, context: Context, model: str) -> Step | None:
        """The step that answers now. None if the script says to rehearse; ``ModelFault`` if there is nothing left."""
        self._match_users(context)
        script = self.script
        found = next(
            (one for at, one in enumerate(script.conversations) if one.serves(model, at in self._matched)), None
        )
        steps = found.steps if found is not None else ()
        runs = context.runs([_items_said(one) for one in steps]) if context.ran_hosted else len(context.stretches)
        if script.on_end == "repeat" and steps:
            return steps[runs % len(steps)]
        if runs < len(steps):
            return steps[runs]
        if script.on_end == "rehearse":
            return None
        if found is None:
            problem = f"has no conversation for this context (model '{model}'). Add a last one without 'when'."
        else:
            there = "1 step" if len(steps) == 1 else f"{len(steps)} steps"
            problem = (
                f"has {there} for this conversation, and this would be step {runs + 1}. "
                "Add it, or set on_end to 'repeat' or 'rehearse'."
            )
        # Not server_error: clients retry that, and the script would be no longer the second time.
        raise ModelFault(f"Script '{script.name}' {problem}", code="invalid_prompt", status=400)

    def copy(self) -> ScriptReader:
        """The same findings for a forked context."""
        other = ScriptReader(self.script)
        other._seen = self._seen
        other._matched = set(self._matched)
        return other

    def _match_users(self, context: Context) -> None:
        wanted = [(index, one.user) for index, one in enumerate(self.script.conversations) if one.user is not None]
        if wanted:
            for item in context.users[self._seen :]:
                text = context.text(item)
                self._matched.update(index for index, part in wanted if part in text)
        self._seen = len(context.users)


def _items_said(step: Step) -> int:
    """How many items a step becomes."""
    return sum(not isinstance(output, Delay | Fault) for output in step.output)


class Planner:
    """Decides and renders runs. Steps without placeholders are rendered once, however many sequences play them."""

    def __init__(self, template: Template) -> None:
        self._template = template
        # By identity: steps hold dicts and have no hash. The step beside its plan keeps the identity its own.
        self._kept: dict[int, tuple[Step, Plan]] = {}

    def plan(self, context: Context, reader: ScriptReader | None, params: SamplingParams, may_rehearse: bool) -> Plan:
        """Decide a whole run. Raises ``ModelFault`` if the script has nothing to say here."""
        context.read()
        step = reader.step(context, params.model) if reader is not None else None
        if step is not None and reader is not None:
            return self._played(step, context, params, reader.script.name)
        # A script that ends in rehearsal has asked for it itself.
        if may_rehearse or reader is not None:
            return self._rendered((rehearse(context, params),))
        return self._rendered((answer(context, params),))

    def _played(self, step: Step, context: Context, params: SamplingParams, script: str) -> Plan:
        kept = self._kept.get(id(step))
        output = step.output if kept is not None else tuple(_filled(entry, context) for entry in step.output)
        if step.fault is None:
            check_said(output, params, script)
        if kept is not None:
            return kept[1]
        made = self._rendered(output)
        fault = made.fault
        if step.fault is not None and (fault is None or step.fault_after_tokens is not None):
            after = len(made.ids) if step.fault_after_tokens is None else min(step.fault_after_tokens, len(made.ids))
            fault = (after, step.fault)
        made = msgspec.structs.replace(made, fault=fault, tps=step.tps, ttft=step.ttft)
        if not any(_has_places(entry) for entry in step.output):
            self._keep(step, made)
        return made

    def _keep(self, step: Step, made: Plan) -> None:
        if len(self._kept) >= MAX_KEPT:
            self._kept.clear()
        self._kept[id(step)] = (step, made)

    def _rendered(self, outputs: tuple[Output, ...]) -> Plan:
        ids: list[int] = []
        delays: list[tuple[int, float]] = []
        for output in outputs:
            if isinstance(output, Delay):
                delays.append((len(ids), output.seconds))
            elif isinstance(output, Fault):
                return Plan(ids, tuple(delays), (len(ids), output))
            else:
                ids += self._template.tokenise(_pieces(output))
        return Plan(ids, tuple(delays))


def _pieces(output: Text | Refusal | Reasoning | Call | Custom) -> Pieces:
    match output:
        case Text(parts, phase):
            return message_pieces(role_text("assistant", phase), [("text", part) for part in parts])
        case Refusal(text):
            return message_pieces("assistant", [("refusal", text)])
        case Reasoning(parts):
            return reasoning_pieces(list(parts))
        case Call(name, arguments):
            text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
            return call_pieces("function_call", name, text)
        case Custom(name, text):
            return call_pieces("custom_tool_call", name, text)


_PLACE = re.compile(r"\{\{(last_user|last_tool_output)\}\}|\{(last_user|last_tool_output)\}")


def _filled(output: Output, context: Context) -> Output:
    """The output with its placeholders replaced."""
    match output:
        case Text(parts, phase):
            return Text(tuple(_fill(part, context) for part in parts), phase)
        case Refusal(text):
            return Refusal(_fill(text, context))
        case Reasoning(parts):
            return Reasoning(tuple(_fill(part, context) for part in parts))
        case Call(name, arguments):
            return Call(name, _fill_value(arguments, context))
        case Custom(name, text):
            return Custom(name, _fill(text, context))
        case _:
            return output


# Any: tool arguments are JSON values of every shape
def _fill_value(value: Any, context: Context) -> Any:
    if isinstance(value, str):
        return _fill(value, context)
    if isinstance(value, dict):
        return {key: _fill_value(entry, context) for key, entry in value.items()}
    return [_fill_value(entry, context) for entry in value] if isinstance(value, list) else value


def _has_places(output: Output) -> bool:
    """Whether filling in changes the output; escaped placeholders count, as they are unescaped then."""
    return _PLACE.search(msgspec.json.encode(output).decode()) is not None


def _fill(text: str, context: Context) -> str:
    return _PLACE.sub(lambda found: f"{{{found[1]}}}" if found[1] else _place(found[2], context), text)


def _place(name: str, context: Context) -> str:
    if name == "last_user":
        return context.text(context.users[-1]) if context.users else ""
    outputs = [item for item in context.tail if item.role in OUTPUT_ROLES]
    return context.text(outputs[-1]) if outputs else ""
