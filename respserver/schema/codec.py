"""Encoders and decoders, made once, and the one place where msgspec's errors become the API's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from respserver import mistakes
from respserver.errors import InvalidField, InvalidJson, InvalidRequest, MissingParameter
from respserver.mistakes import join as join

T = TypeVar("T")

MAX_DEPTH = 100
"""Of a client's JSON schema; those that people write stay below ten."""

HALF_CHARACTER = (
    "a text holds half of a character: an escape from \\ud800 to \\udfff without its other half, "
    "as is left of an emoji that a text was cut in"
)
_HALF_IN_MSGSPECS_WORDS = ("utf-16 surrogate pair", "unexpected end of hex escape")
TAIL = 12
"""How far from a text's end msgspec may take the escape of half a character for a text that was cut off."""
_HALF_AT_END = re.compile(rb'(?<!\\)\\u[dD][89abAB][0-9a-fA-F]{2}"')
_PLACE = re.compile(r" \(byte \d+\)$")

_encoder = msgspec.json.Encoder()
encode = _encoder.encode
"""Any schema struct as compact JSON bytes."""

split_object = msgspec.json.Decoder(dict[str, Raw])
"""A JSON object as its keys and the raw text of each value: nothing inside the values is looked at."""
split_array = msgspec.json.Decoder(list[Raw])

_TYPES = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<got>[^`]+)`$")
_BOUNDS = (
    ("Expected `int` >= ", "integer_below_min_value", "integer below minimum value. Expected a value >= {}"),
    ("Expected `int` <= ", "integer_above_max_value", "integer above maximum value. Expected a value <= {}"),
    ("Expected `float` >= ", "decimal_below_min_value", "decimal below minimum value. Expected a value >= {}"),
    ("Expected `float` <= ", "decimal_above_max_value", "decimal above maximum value. Expected a value <= {}"),
    ("Expected `str` of length <= ", "string_above_max_length",
     "string too long. Expected a string with maximum length {}"),
    ("Expected `str` of length >= ", "empty_string", "empty string. Expected a string with minimum length {}"),
    ("Expected `str` matching regex ", "invalid_value",
     "string does not match pattern. Expected a string that matches the pattern {}"),
)  # fmt: skip
"""How msgspec's words begin, the API's code, and the API's words (protocol.md section 4.2)."""
_KINDS = {
    "str": "a string", "int": "an integer", "float": "a number", "bool": "a boolean", "array": "an array",
    "object": "an object", "null": "null",
}  # fmt: skip
MAX_QUOTED = 100
"""How much of a wrong value is quoted where the right ones stand behind it."""
MAX_LOOKED_AT = 64 << 10
"""Bytes of a text that is decoded again for the value that a message quotes."""


class InvalidType(InvalidField):
    """A field has the wrong type; ``expected`` and ``got`` are types in words, with their articles."""

    code = "invalid_type"
    lead = "Invalid type for"

    def __init__(self, param: str, expected: str, got: str) -> None:
        super().__init__(param, f"expected {expected}, but got {got} instead.")


class InvalidChoice(InvalidField):
    """A field may have one of a few values, and has another."""

    def __init__(self, param: str, value: str, choices: tuple[str, ...]) -> None:
        supported = ", ".join(f"'{choice}'" for choice in choices)
        quoted = value if len(value) <= MAX_QUOTED else f"{value[: MAX_QUOTED - 1]}…"
        InvalidRequest.__init__(self, f"Invalid value: '{quoted}'. Supported values are: {supported}.", param=param)


def read_object(text: bytes | str) -> dict[str, Raw]:
    """The fields of a whole message or body, each value raw. Raises ``InvalidJson`` if it is anything else.

    Raw values are not looked at, and some are echoed: bytes that are no UTF-8 must not come further than this.
    """
    try:
        return decode(split_object, text.decode() if isinstance(text, bytes) else text)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"it is not UTF-8 (byte {error.start})") from None
    except InvalidField:
        raise InvalidJson("expected a JSON object") from None


def decode(decoder: msgspec.json.Decoder[T], text: bytes | str | Raw, param: str = "") -> T:
    """Decode, or raise an ``InvalidRequest`` that names the field below ``param``.

    Malformed JSON raises ``InvalidJson``; a wrong type or value ``InvalidField``; an absent one ``MissingParameter``.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise field_error(error, param, text, decoder.type) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise InvalidJson(_in_words(error, text)) from None
    except RecursionError:
        raise InvalidJson("JSON is nested too deeply") from None


def on_one_line(raw: bytes) -> bytes:
    """The same JSON without line breaks between its tokens: what is echoed must fit into one line of SSE (F21)."""
    if b"\n" not in raw and b"\r" not in raw:
        return raw
    try:
        return msgspec.json.format(raw, indent=-1)
    except RecursionError:
        raise InvalidJson("JSON is nested too deeply") from None


def check_depth(value: object, param: str, most: int = MAX_DEPTH) -> None:
    """Refuse a decoded value that is nested more than ``most`` deep: whoever reads it later has less stack."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > most:
            raise InvalidField(param, f"nested more than {most} levels deep.", "nested_too_deeply")
        level = [inner for outer in level for inner in _inside(outer)]


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def field_error(
    error: msgspec.ValidationError, param: str = "", text: bytes | str | Raw = b"", kind: Any = Any
) -> InvalidRequest:
    """The API's error for one of msgspec's: same facts, in the API's words, the field's path as ``param``.

    ``text`` is what was decoded as ``kind``: messages quote from it.
    """
    problem, path = mistakes.split(error)
    place = join(param, path.replace("[...]", ""))
    if missing := mistakes.missing_field(problem):
        return MissingParameter(join(place, missing))
    place = place or "body"
    if types := _TYPES.match(problem):
        return InvalidType(place, _kinds(types["expected"]), _kinds(types["got"]))
    found = mistakes.find(kind, _again(text), path)
    choices = mistakes.choices(found.type)
    if choices and isinstance(found.value, str):
        return InvalidChoice(place, found.value, choices)
    for start, code, words in _BOUNDS:
        if problem.startswith(start):
            bound = problem.removeprefix(start).removesuffix(".0")
            got = "" if "pattern" in words else _but_got(found.value)
            return InvalidField(place, f"{words.format(bound)}{got}.", code)
    return InvalidField(place, f"{problem[0].lower()}{problem[1:]}.", _other_code(problem))


def _other_code(problem: str) -> str:
    return "invalid_type" if problem.startswith("Expected") else "invalid_value"


def _again(text: bytes | str | Raw) -> object:
    """What a text holds, without any rules; ``ABSENT`` if that would be much work."""
    raw = text.encode(errors="replace") if isinstance(text, str) else bytes(text)
    if len(raw) > MAX_LOOKED_AT:
        return mistakes.ABSENT
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return mistakes.ABSENT


def _but_got(value: object) -> str:
    if isinstance(value, str):
        got = f"a string with length {len(value)}" if value else "an empty string"
        return f", but got {got} instead"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f", but got {value} instead" if is_number else ""


def _kinds(names: str) -> str:
    """msgspec's ``str | array | null`` in words; null is no type that one would send."""
    parts = [name for name in names.split(" | ") if name != "null"] or ["null"]
    return " or ".join(dict.fromkeys(_KINDS.get(name, name) for name in parts))


def _in_words(error: msgspec.DecodeError | UnicodeError, text: bytes | str | Raw) -> str:
    """What is wrong with a text that is no JSON; halves of characters are told so that one knows what to look for."""
    if isinstance(error, UnicodeEncodeError):  # the text itself holds one, which Python allows
        return f"{HALF_CHARACTER} (character {error.start})"
    # msgspec waits for the other half, and if the text ends before that could be over, takes it for cut off.
    tail = text[-TAIL:].encode(errors="replace") if isinstance(text, str) else bytes(text)[-TAIL:]
    if not tail.strip() and len(tail) < TAIL:
        return "it is empty"
    said = str(error)
    if any(words in said for words in _HALF_IN_MSGSPECS_WORDS):
        place = _PLACE.search(said)
        return f"{HALF_CHARACTER}{place[0] if place else ''}"
    return HALF_CHARACTER if _HALF_AT_END.search(tail) else said
