"""Ids of words that were seen before, for short texts of a GPT-2 style tokenizer.

Such a tokenizer cuts a text into words and looks at each by itself, so that the ids of a text are those of its words,
one after another. A turn's text is short and its words come again and again; looking them up is four times faster
than handing the text over. The result is the tokenizer's own, to the id: its model is asked for every word that is
new, and texts that are not ASCII are not for this file, since their words cannot be told apart without tables of all
letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

MAX_WORDS = 16_384
"""About 3 MB. When they are that many, all are forgotten: keeping the order of use would cost more than it saves."""
LONGEST = 24
"""Characters of a word that is kept; longer ones are hashes and the like, and never come again."""

_SPACE = r" \t\n\v\f\r"
_WORDS = re.compile(
    r" [A-Za-z]++|[A-Za-z]++|[0-9]++|'(?:[stmd]|re|ve|ll)"
    rf"|[^{_SPACE}A-Za-z0-9]++| [0-9]++| [^{_SPACE}A-Za-z0-9]++|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
)
"""The ``ByteLevel`` pre-tokenizer's pattern, for ASCII; ``re`` is quicker with it if nothing is optional in front, what
is frequent comes first, and nothing is kept to go back to."""

EncodeWord = Callable[[str], list[int]]


def splits_into_words(fields: Mapping[str, object]) -> bool:
    """Whether a ``tokenizer.json`` cuts its texts in the way that this file knows, and adds nothing of its own."""
    cut = fields.get("pre_tokenizer")
    return (
        isinstance(cut, dict)
        and (cut.get("type"), cut.get("use_regex"), cut.get("add_prefix_space")) == ("ByteLevel", True, False)
        and fields.get("normalizer") is None
    )


class Words:
    """A bounded memory of words in front of ``encode_word``, the tokenizer's model. Safe to share between threads."""

    def __init__(self, encode_word: EncodeWord) -> None:
        self._encode_word = encode_word
        self._kept: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def encode(self, text: str) -> list[int]:
        """The ids of an ASCII text. Keeps the interpreter lock."""
        kept = self._kept
        ids: list[int] = []
        for word in _WORDS.findall(text):
            ids += kept.get(word) or self._learn(word)
        return ids

    def _learn(self, word: str) -> list[int]:
        ids = self._encode_word(word)
        if len(word) <= LONGEST:
            if len(self._kept) >= MAX_WORDS:
                self._kept = {}  # another one: whoever reads the old one at this moment goes on with it
            self._kept[word] = ids
        return ids
