"""What is wrong with a value, in the words of whoever wrote it: for settings, scripts, and what clients send.

msgspec finds a mistake and its place; what should stand there is read off the type, and what does stand there off the
value. Nothing here knows of any setting or field. A ``Meta`` may carry words of its own: ``extra={"words": …}`` stands
in place of those made from its bounds, and a value with ``extra={"secret": True}`` is never shown.
"""

from __future__ import annotations

import enum
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
from msgspec import Meta

MAX_SHOWN = 100
"""How much of a wrong value is shown, and how long a name may be to be compared with others."""
SWITCH = "true or false, without quotes"

_PATH = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]+)`")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_INDEX = re.compile(r"\[\d+\]")
_PLAIN = (str, int, float, bool, type(None))


class Found(NamedTuple):
    """What stands at a place, and what type should."""

    type: Any  # Any: an annotation, here and below
    value: object


ABSENT = object()
"""The value at a place that cannot be reached."""


def explain(
    error: msgspec.ValidationError, kind: Any, value: object, *, below: str = "", brackets: bool = True
) -> tuple[str, str]:
    """The place (``step[0].text``; empty for the whole) and the problem, after converting ``value`` to ``kind`` failed.

    ``below`` is where the value stands itself; ``brackets`` tells that lists of tables are written ``[[name]]``, as in
    TOML.
    """
    problem, path = split(error)
    found = find(kind, value, path)
    place = join(below, path)
    if unknown := _UNKNOWN.match(problem):
        return join(place, unknown["field"]), f"unknown key{closest(unknown['field'], _keys(found))}"
    if missing := missing_field(problem):
        return join(place, missing), "is missing"
    if brackets and isinstance(found.value, dict) and any(_holds_tables(one) for one, _ in _alternatives(found.type)):
        return place, f"write [[{_INDEX.sub('', place)}]], with two brackets"
    return place, refusal(found.type, found.value)


def split(error: msgspec.ValidationError) -> tuple[str, str]:
    """What msgspec says is wrong, and the path that it names: ``step[0].text``, empty for the whole."""
    text = str(error)
    found = _PATH.search(text)
    return (text[: found.start()], found["path"].lstrip(".")) if found else (text, "")


def missing_field(problem: str) -> str | None:
    """The field that msgspec misses, if that is the problem."""
    missing = _MISSING.match(problem)
    return missing["field"] if missing else None


def refusal(kind: Any, value: object, expected: str = "") -> str:
    """``expected a number of at least 0, got -1``; ``expected`` replaces what the type says."""
    words = f"expected {expected or expectation(kind)}"
    return words if value is ABSENT or _is_secret(kind) else f"{words}, got {shown(value)}"


def expectation(kind: Any) -> str:
    """What a value of this type must be, in words."""
    return " or ".join(dict.fromkeys(_words(bare, metas) for bare, metas in _alternatives(kind)))


def choices(kind: Any) -> tuple[str, ...]:
    """The words that a value may be, if it is one of a few."""
    return tuple(choice for bare, _ in _alternatives(kind) for choice in _choices(bare))


def struct_names(kind: Any) -> str:
    """The structs that a value may be, or hold, by the names that programs know them by."""
    return one_of(bare.__name__ for bare, _ in _alternatives(_item(kind)) if _is_struct(bare)) or expectation(kind)


def one_of(names: Iterable[str]) -> str:
    """``a, b or c``."""
    *most, last = [*names] or [""]
    return f"{', '.join(most)} or {last}" if most else last


def shown(value: object) -> str:
    """A wrong value, as far as it can be shown in a line."""
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, (list, tuple)) and not all(isinstance(one, _PLAIN) for one in value):
        return "a list"
    if not isinstance(value, (*_PLAIN, list, tuple)):
        return type(value).__name__
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"


def closest(name: str, names: Iterable[str]) -> str:
    """A hint for a mistyped name: ``; did you mean X?``, or nothing. A mapping of names says how each is written."""
    near = nearest(name, names)
    return f"; did you mean {names[near] if isinstance(names, Mapping) else near}?" if near else ""


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of these names that somebody probably meant who wrote ``name``, if one is near."""
    import difflib  # only mistakes need it

    if len(name) > MAX_SHOWN:  # no slip of the pen, and comparing takes time
        return None
    return next(iter(difflib.get_close_matches(name, names, n=1)), None)


def join(place: str, name: str) -> str:
    """The place of a name, or of an index, below another place."""
    return f"{place}{name}" if not place or name.startswith("[") else f"{place}.{name}" if name else place


def keys(kind: Any) -> list[str]:
    """The keys of the tables that a value may be, or hold."""
    found = [bare for bare, _ in _alternatives(_item(kind)) if _is_struct(bare)]
    return [field.encode_name for one in found for field in msgspec.structs.fields(one)]


def find(kind: Any, value: object, place: str) -> Found:
    """The type and the value at a place; ``Any`` and ``ABSENT`` where the way is lost."""
    for name, index in _STEP.findall(place):
        kind, value = (_field(kind, value, name), _member(value, name)) if name else (_item(kind), _at(value, index))
    return Found(kind, value)


def _alternatives(kind: Any, metas: tuple[Meta, ...] = ()) -> Iterator[tuple[Any, tuple[Meta, ...]]]:
    """The types that a value may have, with what bounds them; None is no alternative that one writes."""
    if get_origin(kind) is Annotated:
        bare, *marks = get_args(kind)
        yield from _alternatives(bare, (*metas, *(mark for mark in marks if isinstance(mark, Meta))))
    elif get_origin(kind) in (Union, types.UnionType):
        for one in get_args(kind):
            if one is not type(None):
                yield from _alternatives(one, metas)
    else:
        yield kind, metas


def _words(bare: Any, metas: tuple[Meta, ...]) -> str:
    own: str | None = next((meta.extra["words"] for meta in metas if meta.extra and "words" in meta.extra), None)
    if own is not None:
        return own
    if bare is bool:
        return SWITCH
    if names := _choices(bare):
        return one_of(names)
    if bare in (int, float):
        return ("a whole number" if bare is int else "a number") + _range(metas)
    if bare is str:
        return "a text that is not empty" if any(meta.min_length for meta in metas) else "a text"
    if get_origin(bare) in (list, tuple):
        item = next(_alternatives(_item(bare)))[0]
        return "a list of tables" if _is_struct(item) else "a list of texts" if item is str else "a list"
    return "a table" if _is_struct(bare) or get_origin(bare) is dict else "another value"


def _choices(bare: Any) -> tuple[str, ...]:
    if get_origin(bare) is Literal:
        return get_args(bare)
    return tuple(bare) if isinstance(bare, type) and issubclass(bare, enum.StrEnum) else ()


def _range(metas: Iterable[Meta]) -> str:
    low = next((meta.ge for meta in metas if meta.ge is not None), None)
    above = next((meta.gt for meta in metas if meta.gt is not None), None)
    high = next((meta.le for meta in metas if meta.le is not None), None)
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" of at least {low}"
    return f" above {above}" if above is not None else ""


def _is_secret(kind: Any) -> bool:
    return any(meta.extra and meta.extra.get("secret") for _, metas in _alternatives(kind) for meta in metas)


def _is_struct(bare: Any) -> bool:
    return isinstance(bare, type) and issubclass(bare, msgspec.Struct)


def _holds_tables(bare: Any) -> bool:
    return get_origin(bare) in (list, tuple) and any(_is_struct(one) for one, _ in _alternatives(_item(bare)))


def _structs(kind: Any, value: object) -> list[type[msgspec.Struct]]:
    """The structs that a table may be: the one of its tag, if it has one."""
    found = [bare for bare, _ in _alternatives(kind) if _is_struct(bare)]
    tagged = [one for one in found if _tag_field(one) and _member(value, _tag_field(one)) == one.__struct_config__.tag]
    return tagged or found


def _tag_field(struct: type[msgspec.Struct]) -> str:
    return struct.__struct_config__.tag_field or ""


def _keys(found: Found) -> list[str]:
    structs = _structs(found.type, found.value)
    return [field.encode_name for one in structs for field in msgspec.structs.fields(one)]


def _field(kind: Any, value: object, name: str) -> Any:
    for struct in _structs(kind, value):
        for field in msgspec.structs.fields(struct):
            if field.encode_name == name:
                return field.type
    if tags := tuple(one.__struct_config__.tag for one in _structs(kind, value) if _tag_field(one) == name):
        return Literal[tags]
    return _item(kind)


def _item(kind: Any) -> Any:
    """What a list or a dict holds; a type that holds nothing is itself."""
    for bare, _ in _alternatives(kind):
        if get_origin(bare) in (list, tuple, dict):
            return get_args(bare)[get_origin(bare) is dict]
    return kind


def _member(value: object, name: str) -> object:
    return value.get(name, ABSENT) if isinstance(value, dict) else getattr(value, name, ABSENT)


def _at(value: object, index: str) -> object:
    if isinstance(value, (list, tuple)) and index.isdigit() and int(index) < len(value):
        return value[int(index)]
    return ABSENT
