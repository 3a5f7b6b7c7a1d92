"""Strings for JSON schemas: by ``format``, by ``pattern`` as well as can be, by length.

Patterns come from clients and this runs on the event loop, so no regular expression engine ever sees one: it could
backtrack without end. A pattern is only read, once from left to right, for a string that it likely matches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any  # Any: schemas and their values are JSON of every shape, throughout this file

MAX_LENGTH = 4096
"""Longer strings are not made, whatever ``minLength`` asks."""
MAX_SAMPLE = 128
"""Nor samples of a pattern longer than this."""
MAX_PATTERN = 512
"""Longer patterns are not read."""
MAX_GROUPS = 32
"""Nor groups that are nested deeper."""
FORMATS = {
    "date": "2025-01-01",
    "date-time": "2025-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "duration": "P1D",
    "email": "user@example.com",
    "hostname": "example.com",
    "ipv4": "127.0.0.1",
    "ipv6": "::1",
    "uri": "https://example.com/",
    "uri-reference": "https://example.com/",
    "url": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
    "regex": "example",
    "json-pointer": "",
}
PLAIN = "example"


def text_of(schema: Mapping[str, Any]) -> Iterator[str]:
    """Strings that may satisfy the schema, the likeliest first."""
    shape, pattern = schema.get("format"), schema.get("pattern")
    if isinstance(shape, str) and shape in FORMATS:
        yield FORMATS[shape]
    low, high = _length(schema, "minLength", 0), _length(schema, "maxLength", MAX_LENGTH)
    if isinstance(pattern, str):
        for extra in (0, 1, low):
            found = sample(pattern, extra)
            if found is not None:
                yield found
    yield (PLAIN * (low // len(PLAIN) + 1))[: max(low, min(high, len(PLAIN)))]


def sample(pattern: str, extra: int) -> str | None:
    """A string that the pattern likely matches, each open repetition taken at least ``extra`` times.

    None if the pattern is no regular expression, looks around or back, or is too long or too deep.
    """
    if len(pattern) > MAX_PATTERN:
        return None
    try:
        return _Sampler(pattern, min(extra, MAX_SAMPLE)).whole()
    except _Unfollowable:
        return None


def _length(schema: Mapping[str, Any], key: str, default: int) -> int:
    value = schema.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return default
    return int(max(0, min(value, MAX_LENGTH)))


class _Unfollowable(Exception):
    """The pattern has a construct that the sampler does not follow."""


_SET = re.compile(r"\[(\^?)((?:\\.|[^\]\\])+)\]", re.DOTALL)
_MEMBER = re.compile(r"(\\.|[^\\])(?:-(\\.|[^\\]))?", re.DOTALL)
"""A letter, an escape, or a range of them."""
_SINGLE = re.compile(r"\\.|[^\\()|*+?\[]", re.DOTALL)
_REPEAT = re.compile(r"\*|\+|\?|\{([0-9]{1,9})(,[0-9]{0,9})?\}")
_ALPHABET = "a0A-_ .@/:" + "".join(map(chr, range(33, 127))) + "\n\t\u00e9"
"""Letters to choose from, the most ordinary first."""
_CONTROLS = {"t": "\t", "r": "\r", "n": "\n", "f": "\f", "v": "\v"}
_Test = Callable[[str], bool]
_SHORTHANDS: dict[str, _Test] = {
    "d": str.isdecimal,
    "s": str.isspace,
    "w": lambda letter: letter.isalnum() or letter == "_",
}


class _Sampler:
    """Walks a pattern once, left to right, taking first alternatives and the fewest repetitions."""

    def __init__(self, pattern: str, extra: int) -> None:
        self._pattern = pattern
        self._extra = extra
        self._at = 0
        self._open_groups = 0

    def whole(self) -> str:
        """The sample of the whole pattern. Raises ``_Unfollowable``."""
        made = self._alternatives()
        if self._at < len(self._pattern):
            raise _Unfollowable
        return made

    def _alternatives(self) -> str:
        """Everything up to the end, or to the bracket that closes this group."""
        first = self._sequence()
        while self._take("|"):
            self._sequence()
        return first

    def _sequence(self) -> str:
        made = ""
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            if self._take("^") or self._take("$"):
                continue
            piece = self._group() if self._take("(") else self._character()
            times = self._repetitions()
            if len(made) + len(piece) * times > MAX_SAMPLE:
                raise _Unfollowable
            made += piece * times
        return made

    def _group(self) -> str:
        self._open_groups += 1
        if self._open_groups > MAX_GROUPS or (self._take("?") and not self._take(":")):
            raise _Unfollowable
        inner = self._alternatives()
        if not self._take(")"):
            raise _Unfollowable
        self._open_groups -= 1
        return inner

    def _character(self) -> str:
        """One letter for the set, escape, dot or literal that stands here."""
        found = _SET.match(self._pattern, self._at)
        if found is not None:
            self._at = found.end()
            return _of_set(found[2], is_inverse=bool(found[1]))
        found = _SINGLE.match(self._pattern, self._at)
        if found is None:
            raise _Unfollowable
        self._at = found.end()
        return "a" if found[0] == "." else _of_set(found[0], is_inverse=False)

    def _repetitions(self) -> int:
        found = _REPEAT.match(self._pattern, self._at)
        if found is None:
            return 1
        self._at = found.end()
        self._take("?")
        least = min(int(found[1]), MAX_SAMPLE + 1) if found[1] else int(found[0] == "+")
        is_open = found[0] in ("*", "+") or found[2] == ","
        return max(least, self._extra) if is_open else least

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True


def _of_set(members: str, is_inverse: bool) -> str:
    """The first ordinary letter of a set, or a rarer one that it names itself."""
    tests = [_test(found[1], found[2]) for found in _MEMBER.finditer(members)]
    for letter in _ALPHABET + members:
        if any(test(letter) for test in tests) is not is_inverse:
            return letter
    raise _Unfollowable


def _test(first: str, last: str | None) -> _Test:
    """What one member of a set accepts. Raises ``_Unfollowable``."""
    shorthand = _SHORTHANDS.get(first[1].lower()) if len(first) == 2 and last is None else None
    if shorthand is not None:
        return shorthand if first[1].islower() else lambda letter: not shorthand(letter)
    low = _letter(first)
    high = low if last is None else _letter(last)
    if low > high:
        raise _Unfollowable
    return lambda letter: low <= letter <= high


def _letter(written: str) -> str:
    """The letter that a literal or an escape stands for. Other escaped letters and digits mean all kinds of things."""
    if len(written) == 1:
        return written
    letter = _CONTROLS.get(written[1], written[1])
    if letter.isalnum():
        raise _Unfollowable
    return letter
