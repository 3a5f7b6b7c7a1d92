"""Strings for JSON schemas: by ``format``, by ``pattern`` as well as can be, by length.

Patterns come from clients and run on the event loop, so one that could backtrack without end is not run at all: it
must be plain enough for ``sample`` to follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any  # Any: schemas and their values are JSON of every shape, throughout this file

MAX_LENGTH = 4096
"""Longer strings are not made, whatever ``minLength`` asks."""
MAX_SAMPLE = 128
"""Nor samples of a pattern longer than this."""
MAX_CHOICES = 4
"""Patterns with more open repetitions and alternatives are not run: 128 characters and 4 choices are 0.2 s at worst."""
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
    shape = schema.get("format")
    if isinstance(shape, str) and shape in FORMATS:
        yield FORMATS[shape]
    low, high = _length(schema, "minLength", 0), _length(schema, "maxLength", MAX_LENGTH)
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        yield from (word for word in (PLAIN, *FORMATS.values()) if low <= len(word) <= high)
        for extra in (0, 1, low):
            found = sample(pattern, extra)
            if found is not None:
                yield found
    yield (PLAIN * (low // len(PLAIN) + 1))[: max(low, min(high, len(PLAIN)))]


def matches(pattern: Any, text: str) -> bool:
    """Whether the pattern is found in ``text``; True for what is no pattern or might take too long to tell."""
    if not isinstance(pattern, str) or sample(pattern, 0) is None:
        return True
    return re.search(pattern, text) is not None


def sample(pattern: str, extra: int) -> str | None:
    """A string that the pattern likely matches, each open repetition taken at least ``extra`` times.

    None if the pattern is no regular expression, looks around or back, repeats a choice, or grows too long.
    """
    if _NESTED_SET.search(pattern):
        return None
    try:
        re.compile(pattern)
        return _Sampler(pattern, min(extra, MAX_SAMPLE)).alternatives()
    except (re.error, _Unfollowable, RecursionError, OverflowError):
        return None


def _length(schema: Mapping[str, Any], key: str, default: int) -> int:
    value = schema.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return default
    return max(0, min(int(value), MAX_LENGTH))


class _Unfollowable(Exception):
    """The pattern has a construct that the sampler does not follow."""


_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\[dDwWsStnrfv]|\\[^a-zA-Z0-9]|\.|[^\\()|*+?\[]")
"""One character's worth of pattern: a class in brackets, an escape, a dot, a literal."""
_NESTED_SET = re.compile(r"\[\[|--|&&|~~|\|\|")
"""Python warns that these may get a meaning of their own."""
_REPEAT = re.compile(r"\*|\+|\?|\{(\d+)(,\d*)?\}")
_ALPHABET = "a0A-_ .@/:" + "".join(map(chr, range(33, 127))) + "\n\té"


class _Sampler:
    """Walks a pattern once, left to right, taking first alternatives and the fewest repetitions."""

    def __init__(self, pattern: str, extra: int) -> None:
        self._pattern = pattern
        self._extra = extra
        self._at = 0
        self._choices = 0
        """Open repetitions and alternatives so far: what a matcher could go back to."""

    def alternatives(self) -> str:
        """Everything up to the end, or to the bracket that closes this group."""
        first = self._sequence()
        while self._take("|"):
            self._choices += 1
            self._sequence()
        return first

    def _sequence(self) -> str:
        made = ""
        while self._at < len(self._pattern) and self._pattern[self._at] not in "|)":
            if self._take("^") or self._take("$"):
                continue
            choices = self._choices
            piece = self._group() if self._take("(") else self._character()
            times = self._repetitions(self._choices > choices)
            if len(made) + len(piece) * times > MAX_SAMPLE or self._choices > MAX_CHOICES:
                raise _Unfollowable
            made += piece * times
        return made

    def _group(self) -> str:
        if self._take("?") and not self._take(":"):
            raise _Unfollowable
        inner = self.alternatives()
        self._take(")")
        return inner

    def _character(self) -> str:
        found = _CLASS.match(self._pattern, self._at)
        if found is None:
            raise _Unfollowable
        self._at = found.end()
        test = re.compile(found[0])
        return next((letter for letter in _ALPHABET if test.fullmatch(letter)), found[0])

    def _repetitions(self, of_choices: bool) -> int:
        found = _REPEAT.match(self._pattern, self._at)
        if found is None:
            return 1
        self._at = found.end()
        self._take("?")
        least = int(found[1]) if found[1] else int(found[0] == "+")
        if found[1] and not found[2]:
            return least
        if of_choices:
            raise _Unfollowable
        self._choices += 1
        return least if found[0] == "?" or (found[2] or ",") != "," else max(least, self._extra)

    def _take(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True
