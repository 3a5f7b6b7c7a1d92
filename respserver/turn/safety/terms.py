"""A classifier that looks for terms and patterns from a file; the file's form stands in docs/safety.md.

Terms are sequences of words, looked up in a table by their first word, and not branches of one big expression: the
work is linear in the text and the same for ten terms and ten thousand, and terms that overlap or hold one another are
all found. A pattern is searched by itself, so that its groups and references count from 1.

Nothing here runs on a long text as a whole: `re` holds the interpreter lock, so a thread would hold up the others too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import msgspec
import trio

from respserver.errors import ConfigError
from respserver.schema.items import InputItem
from respserver.turn.safety.base import PASS, Action, Verdict
from respserver.turn.safety.texts import texts_of

PIECE_CHARACTERS = 1 << 12
"""A text is read in pieces of at least so many and at most twice as many characters: about 1 ms of work, after which
other tasks may run."""
WINDOW_CHARACTERS = 1 << 10
REACH_CHARACTERS = 1 << 10
"""A pattern is searched in a text from so many beginnings at a time, and sees so much behind the last of them. This
also bounds a pattern that tries every beginning with every end; one search cannot be stopped."""
MARKS = 64
"""More characters in a row that are neither words nor white space are normalised apart. No text that is meant to be
read has more than 30 marks on a letter (UAX 15, section 13), and Python sorts them in quadratic time."""

_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Thai, Lao, Burmese, Khmer, kana and Han put no spaces between words: there, each character is a word of its own."""
_WORD = re.compile(rf"[^\W{_UNSPACED}]+|[{_UNSPACED}]|[^\w\s]")
_ASCII_WORD = re.compile(r"[a-z0-9_]+|[^a-z0-9_\s\x1c-\x1f]", re.ASCII)
"""The same for ASCII in lower case, three times as fast; four separators are white space only in Unicode."""
_CUT = re.compile(r"[\s!-/:-@\[-^`{-~\u4e00-\u9fff]")
"""What begins a word or stands between words, and changes nothing in front of it when it is normalised."""
_MANY_MARKS = re.compile(rf"[^\w\s]{{{MARKS + 1}}}")
_FEW_MARKS = re.compile(rf"[\w\s]*[^\w\s]{{0,{MARKS}}}")
_INVISIBLE = re.compile("[\u00ad\u034f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+")
"""Characters that nobody sees, such as the soft hyphen, would else hide a term."""
_PREFIXED = re.compile(r"(?P<prefix>.*?)\s*:(?:\s+|$)(?P<rest>.*)")
_PREFIX = re.compile(r"(?:(?P<action>block|flag)(?:\s+|$))?(?P<category>[A-Za-z0-9][A-Za-z0-9_./-]{0,63})?")


class Terms(msgspec.Struct, frozen=True):
    """What is looked for, and the verdict on each."""

    by_first_word: dict[str, list[tuple[list[str], Verdict]]]
    patterns: list[tuple[re.Pattern[str], Verdict]]
    longest: int
    """Words of the longest term."""


class TermsClassifier:
    """Finds ``terms`` in the new items."""

    reads: Literal["new", "context"] = "new"

    def __init__(self, name: str, terms: Terms, *, when: Literal["before", "beside"] = "before") -> None:
        self.name = name
        self.when: Literal["before", "beside"] = when
        self._terms = terms

    async def screen(self, items: Sequence[InputItem], verdict: Verdict) -> Verdict:  # noqa: ARG002 - an interface's
        """All that is found, in the order of the text. Waits only to let other tasks run during long texts."""
        found = PASS
        worked = 0
        for characters, said in _search(self._terms, items):
            found = found.merged(said)
            worked += characters
            if worked >= PIECE_CHARACTERS:
                worked = 0
                await trio.lowlevel.checkpoint()
        return found

    async def aclose(self) -> None:
        """Nothing is held."""


def read_terms(lines: Iterable[str], file: str, category: str) -> Terms:
    """The terms of a file's lines; ``category`` is that of lines which name none.

    Raises ``ConfigError`` whose ``option`` is ``file:line``.
    """
    terms = Terms(by_first_word={}, patterns=[], longest=1)
    longest = 1
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            verdict, rest = _read_line(text, category)
            if len(rest) > 1 and rest.startswith("/") and rest.endswith("/"):
                terms.patterns.append((_compile(rest[1:-1]), verdict))
            else:
                words = _words(rest)
                terms.by_first_word.setdefault(words[0], []).append((words, verdict))
                longest = max(longest, len(words))
        except ValueError as error:
            raise ConfigError(f"{file}:{number}", str(error)) from error
    return msgspec.structs.replace(terms, longest=longest)


def normalise(text: str) -> str:
    """The form in which texts are compared: case, width, ligatures and invisible characters make no difference."""
    if text.isascii():
        return text.lower()
    if _MANY_MARKS.search(text):
        return "".join(map(_normalise, _FEW_MARKS.findall(text)))
    return _normalise(text)


def pieces(text: str) -> Iterator[str]:
    """A text in pieces that can be normalised and searched for words by themselves.

    They are cut between words. Where there is none, in a "word" of thousands of letters, the cut is anywhere.
    """
    start = 0
    while len(text) - start > 2 * PIECE_CHARACTERS:
        cut = _CUT.search(text, start + PIECE_CHARACTERS, start + 2 * PIECE_CHARACTERS)
        end = cut.start() if cut else start + 2 * PIECE_CHARACTERS
        yield text[start:end]
        start = end
    yield text[start:]


def _normalise(text: str) -> str:
    visible = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text))
    return unicodedata.normalize("NFKC", visible.casefold())


def _read_line(text: str, category: str) -> tuple[Verdict, str]:
    """The verdict and the term of ``[block|flag] [category]: term``, where all up to the colon may be left out."""
    line = None if text.startswith("/") else _PREFIXED.fullmatch(text)
    if line is None:
        return Verdict("block", (category,)), text
    prefix = _PREFIX.fullmatch(line["prefix"])
    if prefix is None:
        raise ValueError(f"'{line['prefix']}' in front of the colon is not '[block|flag] [category]'")
    action: Action = "flag" if prefix["action"] == "flag" else "block"
    return Verdict(action, (prefix["category"] or category,)), line["rest"]


def _words(text: str) -> list[str]:
    words = _split(normalise(text))
    if not words:
        raise ValueError("there is no term")
    return words


def _compile(source: str) -> re.Pattern[str]:
    try:
        pattern = re.compile(unicodedata.normalize("NFC", source), re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(f"not a regular expression: {error}") from error
    if pattern.search("") is not None:
        raise ValueError("the pattern matches the empty text, hence every text")
    return pattern


def _search(terms: Terms, items: Iterable[InputItem]) -> Iterator[tuple[int, Verdict]]:
    """What is found, piece by piece, each with the characters that it took."""
    for item in items:
        for text in texts_of(item):
            normal: list[str] = []
            kept: list[str] = []
            for piece in map(normalise, pieces(text)):
                normal.append(piece)
                words = kept + _split(piece)
                yield len(piece), _find(terms, words)
                # A term may begin in one piece and end in the next.
                kept = words[1 - terms.longest :] if terms.longest > 1 else []
            whole = "".join(normal)
            for pattern, verdict in terms.patterns:
                yield from _search_pattern(pattern, verdict, whole)


def _search_pattern(pattern: re.Pattern[str], verdict: Verdict, text: str) -> Iterator[tuple[int, Verdict]]:
    """Window by window, each with what it reaches; what begins behind a window is left to the next one."""
    start = 0
    while len(text) - start > WINDOW_CHARACTERS + REACH_CHARACTERS:
        end = start + WINDOW_CHARACTERS
        match = pattern.search(text, start, end + REACH_CHARACTERS)
        yield WINDOW_CHARACTERS + REACH_CHARACTERS, verdict if match and match.start() < end else PASS
        start = end
    yield len(text) - start, verdict if pattern.search(text, start) else PASS


def _split(normal: str) -> list[str]:
    return (_ASCII_WORD if normal.isascii() else _WORD).findall(normal)


def _find(terms: Terms, words: list[str]) -> Verdict:
    found = PASS
    if terms.by_first_word.keys().isdisjoint(words):
        return found
    for index, word in enumerate(words):
        for term, verdict in terms.by_first_word.get(word, ()):
            if words[index : index + len(term)] == term:
                found = found.merged(verdict)
    return found
