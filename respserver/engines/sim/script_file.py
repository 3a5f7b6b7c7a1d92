"""Scripts read from TOML or JSON, strictly: a mistake is a ``ConfigError`` that names the file and the place.

The format is described in ``docs/scripts.md``. The structs here are its tables, key for key; what the steps mean is
``script.py``'s.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from respserver import mistakes
from respserver.engines.sim.pace import Amount
from respserver.engines.sim.script import (
    Call,
    Conversation,
    Custom,
    Delay,
    Fault,
    Name,
    OnEnd,
    Output,
    Phase,
    Reasoning,
    Refusal,
    Script,
    Step,
    Text,
    TokenCount,
)
from respserver.errors import ConfigError

Format = Literal["toml", "json"]

_Parts = str | Annotated[list[str], Meta(min_length=1)]


class _Said(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The keys that a step may have itself and that an output table has one of."""

    delay: Amount | None = None
    reasoning: _Parts | None = None
    text: _Parts | None = None
    phase: Phase | None = None
    refusal: str | None = None
    call: Name | None = None
    arguments: dict[str, Any] | str | None = None  # Any: tool arguments are JSON values of the author's choice
    custom: Name | None = None
    input: str | None = None
    fault: str | None = None
    code: Name | None = None


class _Step(_Said, kw_only=True, forbid_unknown_fields=True):
    output: list[_Said] | None = None
    tps: Amount | None = None
    ttft: Amount | None = None
    fault_after_tokens: TokenCount | None = None


class _When(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    user: str | None = None
    model: Name | None = None


class _Conversation(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    step: list[_Step]
    when: _When = _When()


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    step: list[_Step] | None = None
    conversation: list[_Conversation] | None = None
    on_end: OnEnd = "fail"


_KINDS = ("delay", "reasoning", "text", "refusal", "call", "custom", "fault")
"""In the order in which a step's own keys are played."""
_COMPANIONS = (("phase", "text"), ("arguments", "call"), ("input", "custom"), ("code", "fault"))


def load_script(path: str | Path) -> Script:
    """Read a script file; the name's ending says which format. Raises ``ConfigError``."""
    name, ending = str(path), Path(path).suffix.lower()
    if ending not in (".toml", ".json"):
        raise ConfigError(name, "a script's name ends with .toml or .json")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(name, f"cannot be read: {error.strerror}") from error
    except UnicodeError as error:
        raise ConfigError(name, "cannot be read: it is not UTF-8 text") from error
    return parse_script(text, "toml" if ending == ".toml" else "json", name)


def parse_script(text: str, format: Format, name: str = "script") -> Script:
    """Read a script's text; ``name`` stands before the place in errors. Raises ``ConfigError``."""
    document = _decode(text, format, name)
    try:
        file = msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        raise _mistake(name, *mistakes.explain(error, _File, document, brackets=format == "toml")) from None
    conversations = _conversations(file, name)
    with _at(name, ""):
        return Script(conversations=conversations, on_end=file.on_end, name=name)


def _decode(text: str, format: Format, name: str) -> object:
    try:
        return tomllib.loads(text) if format == "toml" else msgspec.json.decode(text)
    except (tomllib.TOMLDecodeError, msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(name, f"not {format.upper()}: {error}") from error


def _mistake(name: str, place: str, problem: str) -> ConfigError:
    return ConfigError(f"{name}: {place}" if place else name, problem)


@contextlib.contextmanager
def _at(name: str, place: str) -> Iterator[None]:
    """What is made in the block stands at this place: its mistakes are named with it."""
    try:
        yield
    except ConfigError as error:
        raise _mistake(name, mistakes.join(place, error.option), error.problem) from None


def _conversations(file: _File, name: str) -> tuple[Conversation, ...]:
    if (file.step is None) == (file.conversation is None):
        raise ConfigError(name, "a script has either [[step]] or [[conversation]] tables")
    tables = [_Conversation(step=file.step)] if file.step is not None else file.conversation or []
    places = [""] if file.step is not None else [f"conversation[{index}]" for index in range(len(tables))]
    return tuple(_conversation(table, place, name) for table, place in zip(tables, places, strict=True))


def _conversation(table: _Conversation, place: str, name: str) -> Conversation:
    steps = _steps(table.step, mistakes.join(place, "step"), name)
    with _at(name, place):
        return Conversation(steps=steps, user=table.when.user, model=table.when.model)


def _steps(tables: list[_Step], place: str, name: str) -> tuple[Step, ...]:
    return tuple(_step(table, f"{place}[{index}]", name) for index, table in enumerate(tables))


def _step(table: _Step, place: str, name: str) -> Step:
    _check_companions(table, place, name)
    said = [kind for kind in _KINDS if kind != "fault" and getattr(table, kind) is not None]
    if table.output is not None and said:
        raise _mistake(name, f"{place}.{said[0]}", "stands beside output; put it into the list")
    if table.output is None and not said and table.fault is None:
        raise _mistake(name, place, f"expected output or one of {', '.join(_KINDS)}")
    if table.output is None:
        output = tuple(_output(table, kind, place, name) for kind in said)
    else:
        output = tuple(_listed(entry, f"{place}.output[{index}]", name) for index, entry in enumerate(table.output))
    with _at(name, place):
        return Step(
            output=output,
            tps=table.tps,
            ttft=table.ttft,
            fault=_fault(table) if table.fault is not None else None,
            fault_after_tokens=table.fault_after_tokens,
        )


def _listed(entry: _Said, place: str, name: str) -> Output:
    kinds = [kind for kind in _KINDS if getattr(entry, kind) is not None]
    if len(kinds) != 1:
        got = " and ".join(kinds) or "none"
        raise _mistake(name, place, f"expected one of {', '.join(_KINDS)}; got {got}")
    _check_companions(entry, place, name)
    return _output(entry, kinds[0], place, name)


def _check_companions(table: _Said, place: str, name: str) -> None:
    for key, owner in _COMPANIONS:
        if getattr(table, key) is not None and getattr(table, owner) is None:
            raise _mistake(name, f"{place}.{key}", f"needs {owner} beside it")
    if table.custom is not None and table.input is None:
        raise _mistake(name, f"{place}.custom", "needs input beside it")


def _output(table: _Said, kind: str, place: str, name: str) -> Output:
    with _at(name, place):
        return _made(table, kind)


def _made(table: _Said, kind: str) -> Output:
    match kind:
        case "delay":
            return Delay(table.delay or 0.0)
        case "reasoning":
            return Reasoning(_parts(table.reasoning))
        case "text":
            return Text(_parts(table.text), table.phase)
        case "refusal":
            return Refusal(table.refusal or "")
        case "call":
            return Call(table.call or "", {} if table.arguments is None else table.arguments)
        case "custom":
            return Custom(table.custom or "", table.input or "")
        case _:
            return _fault(table)


def _fault(table: _Said) -> Fault:
    return Fault(table.fault or "", table.code or "server_error")


def _parts(given: str | list[str] | None) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given or ())
