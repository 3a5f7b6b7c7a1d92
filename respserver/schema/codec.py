"""Encoders and decoders, made once, and the one place where msgspec's error text becomes our ``param``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec
from msgspec import Raw

from respserver.errors import InvalidField, InvalidJson, InvalidRequest, MissingParameter

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

_PATH = re.compile(r" - at (?:`key` in )?`\$(?P<path>[^`]*)`$")
_MISSING = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_BOUNDS = (
    ("Expected `int` >=", "integer_below_min_value"),
    ("Expected `int` <=", "integer_above_max_value"),
    ("Expected `float` >=", "decimal_below_min_value"),
    ("Expected `float` <=", "decimal_above_max_value"),
    ("Expected `str` of length <=", "string_above_max_length"),
    ("Expected `str` of length >=", "empty_string"),
    ("Invalid enum value", "invalid_value"),
    ("Expected", "invalid_type"),
)


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
        raise field_error(error, param) from None
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


def field_error(error: msgspec.ValidationError, param: str = "") -> InvalidRequest:
    """The API's error for one of msgspec's: same facts, the field's path as ``param``."""
    text = str(error)
    found = _PATH.search(text)
    path = join(param, found["path"].replace("[...]", "").lstrip(".") if found else "")
    problem = text[: found.start()] if found else text
    missing = _MISSING.match(problem)
    if missing:
        return MissingParameter(join(path, missing["field"]))
    code = next((code for start, code in _BOUNDS if problem.startswith(start)), "invalid_value")
    return InvalidField(path or "body", f"{problem}.", code)


def join(param: str, path: str) -> str:
    """A field's path below another: ``join("input[0]", "role")`` is ``input[0].role``."""
    if not param or not path:
        return param or path
    return f"{param}{path}" if path.startswith("[") else f"{param}.{path}"


def _in_words(error: msgspec.DecodeError | UnicodeError, text: bytes | str | Raw) -> str:
    """What is wrong with a text that is no JSON; halves of characters are told so that one knows what to look for."""
    if isinstance(error, UnicodeEncodeError):  # the text itself holds one, which Python allows
        return f"{HALF_CHARACTER} (character {error.start})"
    said = str(error)
    if any(words in said for words in _HALF_IN_MSGSPECS_WORDS):
        place = _PLACE.search(said)
        return f"{HALF_CHARACTER}{place[0] if place else ''}"
    # msgspec waits for the other half, and if the text ends before that could be over, takes it for cut off.
    tail = text[-TAIL:].encode(errors="replace") if isinstance(text, str) else bytes(text)[-TAIL:]
    return HALF_CHARACTER if _HALF_AT_END.search(tail) else said
