"""What a script is: the answers that the embedded model gives, step by step.

Types and small constructors for scripts made in Python live here; reading them from files is ``script_file.py``'s,
playing them ``plan.py``'s. Nothing here knows of tokens. The format for users is described in ``docs/scripts.md``.
"""

from __future__ import annotations

import datetime
import fnmatch
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from respserver.engines.sim.pace import Amount, check_value
from respserver.errors import ConfigError
from respserver.mistakes import shown

Phase = Literal["commentary", "final_answer"]
OnEnd = Literal["fail", "repeat", "rehearse"]
Name = Annotated[str, Meta(min_length=1)]
TokenCount = Annotated[int, Meta(ge=0)]
_JSON = (str, int, float, type(None), datetime.date, datetime.time)
"""What JSON can say, and what TOML has beside it and becomes text."""


class Text(msgspec.Struct, frozen=True):
    """An assistant message with one text part per string, in a phase of the answer if it says so."""

    parts: tuple[str, ...]
    phase: Phase | None = None

    def __post_init__(self) -> None:
        """Raises ``ConfigError``."""
        check_value("phase", self.phase, Phase | None)


class Refusal(msgspec.Struct, frozen=True):
    """An assistant message that refuses."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """A reasoning item with one part per string."""

    parts: tuple[str, ...]


class Call(msgspec.Struct, frozen=True):
    """A call of a function tool by its qualified name. ``arguments`` is an object, or text that is sent as it is."""

    name: str
    arguments: Any = msgspec.field(default_factory=dict)  # Any: a JSON object or raw text

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` for arguments that JSON cannot say."""
        for place, value in _not_json(self.arguments, "arguments"):
            raise ConfigError(place, f"expected a JSON value, got {shown(value)}")


class Custom(msgspec.Struct, frozen=True):
    """A call of a custom tool by its qualified name, with free text."""

    name: str
    input: str


class Delay(msgspec.Struct, frozen=True):
    """A silence between two outputs, in seconds."""

    seconds: float

    def __post_init__(self) -> None:
        """Raises ``ConfigError``."""
        check_value("delay", self.seconds, Amount)


class Fault(msgspec.Struct, frozen=True):
    """The model breaks here: ``ModelFault`` with this message and code."""

    message: str
    code: str = "server_error"


Output = Text | Refusal | Reasoning | Call | Custom | Delay | Fault


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one model call. ``tps`` and ``ttft`` replace the engine's for this step."""

    output: tuple[Output, ...]
    tps: float | None = None
    ttft: float | None = None
    fault: Fault | None = None
    """Raised at the end of the output, or after ``fault_after_tokens`` tokens of it."""
    fault_after_tokens: int | None = None

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` naming the field."""
        check_value("tps", self.tps, Amount | None)
        check_value("ttft", self.ttft, Amount | None)
        check_value("fault_after_tokens", self.fault_after_tokens, TokenCount | None)
        if self.fault is not None and not isinstance(self.fault, Fault):  # callers without a type checker pass anything
            raise ConfigError("fault", f"expected a text or a fault, got {shown(self.fault)}")
        if self.fault_after_tokens is not None and self.fault is None:
            raise ConfigError("fault_after_tokens", "needs fault beside it")


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """Steps in order, and which contexts they answer: all conditions that are given must hold."""

    steps: tuple[Step, ...]
    user: str | None = None
    """Text that some user message of the context must contain."""
    model: str | None = None
    """Shell pattern that the model's name must match."""

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` naming the field."""
        check_value("user", self.user, str | None)
        check_value("model", self.model, Name | None)
        if not self.steps:
            raise ConfigError("step", "a script needs at least one step")

    def serves(self, model: str, user_matched: bool) -> bool:
        """Whether this conversation answers a call of ``model`` whose user messages matched, or did not."""
        if self.user is not None and not user_matched:
            return False
        return self.model is None or fnmatch.fnmatchcase(model, self.model)


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """All conversations of a script; the first that serves a context is played. ``name`` appears in errors."""

    conversations: tuple[Conversation, ...]
    on_end: OnEnd = "fail"
    name: str = "script"

    def __post_init__(self) -> None:
        """Raises ``ConfigError`` naming the field."""
        check_value("on_end", self.on_end, OnEnd)
        if not self.conversations:
            raise ConfigError("conversation", "a script needs at least one conversation")

    @staticmethod
    def of(*steps: StepLike, on_end: OnEnd = "fail", name: str = "script") -> Script:
        """A script of one conversation that serves every context.

        Each argument is a step: a string is a text answer, an ``Output`` stands alone, a list is several outputs in
        order, and ``step()`` says more. Raises ``ConfigError`` for anything else.

            Script.of("hello", call("get_weather", city="Paris"), "It is sunny.")
        """
        return Script(conversations=(conversation(*steps),), on_end=on_end, name=name)


OutputLike = str | Output
StepLike = OutputLike | list[OutputLike] | tuple[OutputLike, ...] | Step


def conversation(*steps: StepLike, user: str | None = None, model: str | None = None) -> Conversation:
    """A conversation of steps as ``Script.of`` takes them, for contexts with this text from the user and this model."""
    made = tuple(_as_step(given, f"step[{index}]") for index, given in enumerate(steps))
    return Conversation(steps=made, user=user, model=model)


def step(
    *outputs: OutputLike,
    tps: float | None = None,
    ttft: float | None = None,
    fault: Fault | str | None = None,
    fault_after_tokens: int | None = None,
) -> Step:
    """One step with its own pace (tokens per second, seconds to the first token) or a fault inside its output.

    A ``fault`` may be its message alone. Raises ``ConfigError`` for a number that is negative or not finite, and for
    ``fault_after_tokens`` without a fault.
    """
    return Step(
        output=_as_outputs(outputs, "output"),
        tps=tps,
        ttft=ttft,
        fault=Fault(fault) if isinstance(fault, str) else fault,
        fault_after_tokens=fault_after_tokens,
    )


def text(*parts: str, phase: Phase | None = None) -> Text:
    """A message of one or more text parts, labelled as commentary or final answer if ``phase`` says so.

    Raises ``ConfigError`` for another phase, or for what is no text.
    """
    _check_texts("text", parts)
    return Text(parts, phase)


def refusal(text: str) -> Refusal:
    """A message that refuses."""
    _check_texts("refusal", [text])
    return Refusal(text)


def reasoning(*parts: str) -> Reasoning:
    """A reasoning item of one or more parts."""
    _check_texts("reasoning", parts)
    return Reasoning(parts)


# Any: tool arguments are JSON values of the caller's choice, here and below
def call(name: str, arguments: Mapping[str, Any] | str | None = None, /, **fields: Any) -> Call:
    """A function call; arguments by keyword, as a mapping, or as raw text (which may be broken JSON).

    Raises ``ConfigError`` for a value that JSON does not have.
    """
    check_value("call", name, Name)
    if isinstance(arguments, str):
        if fields:
            raise ConfigError("arguments", "a text is sent as it is; arguments by keyword cannot be joined to it")
        return Call(name, arguments)
    if arguments is not None and not isinstance(arguments, Mapping):  # callers without a type checker pass anything
        raise ConfigError("arguments", f"expected a mapping or a text, got {shown(arguments)}")
    return Call(name, {**(arguments or {}), **fields})


def custom(name: str, input: str) -> Custom:
    """A call of a custom tool."""
    check_value("custom", name, Name)
    _check_texts("input", [input])
    return Custom(name, input)


def delay(seconds: float) -> Delay:
    """A silence of so many seconds. Raises ``ConfigError`` if they are negative or not finite."""
    return Delay(seconds)


def fault(message: str, code: str = "server_error") -> Fault:
    """A model fault; ``code`` is the ``error.code`` of the failed response."""
    _check_texts("fault", [message])
    check_value("code", code, Name)
    return Fault(message, code)


def _check_texts(name: str, given: Sequence[object]) -> None:
    """Callers without a type checker pass anything. Raises ``ConfigError``."""
    for one in given:
        check_value(name, one, str)


def _as_step(given: StepLike, place: str) -> Step:
    if isinstance(given, Step):
        return given
    if isinstance(given, (list, tuple)):
        return Step(output=_as_outputs(given, place))
    return Step(output=(_as_output(given, place),))


def _as_outputs(given: Sequence[OutputLike], place: str) -> tuple[Output, ...]:
    return tuple(_as_output(output, f"{place}[{index}]") for index, output in enumerate(given))


def _as_output(given: OutputLike, place: str) -> Output:
    if isinstance(given, str):
        return Text((given,))
    if not isinstance(given, Output):  # callers without a type checker pass anything
        raise ConfigError(place, f"expected a text or an output such as call(…), got {shown(given)}")
    return given


def _not_json(value: object, place: str) -> Iterator[tuple[str, object]]:
    """What JSON cannot say of a value, and where it stands."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _not_json(inner, f"{place}.{key}") if isinstance(key, str) else [(place, key)]
    elif isinstance(value, (list, tuple)):
        for index, inner in enumerate(value):
            yield from _not_json(inner, f"{place}[{index}]")
    elif not isinstance(value, _JSON) or (isinstance(value, float) and not math.isfinite(value)):
        yield place, value
