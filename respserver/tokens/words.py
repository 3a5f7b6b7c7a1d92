"""Ids of words that were seen before, for short texts of a GPT-2 style tokenizer.

Such a tokenizer cuts a text into words and looks at each by itself, so that the ids of a text are those of its words,
one after another. A turn's text is short and its words come again and again; looking them up is four times faster
than handing the text over. The result is the tokenizer's own, to the id: it is asked for every word that is new, and
for every text that is not ASCII, whose words cannot be told apart without tables of all letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

MAX_WORDS = 16_384
"""About 3 MB. When they are that many, all are forgotten: keeping the order of use would cost more than it saves."""
LONGEST = 24
"""Characters of a word that is kept; longer ones are hashes and the like, and never come again."""
MAX_LEARNT = 32
"""New words of one text that are asked for one by one; with more of them the whole text is cheaper."""

_WORDS = re.compile(r"'(?:[stmd]|re|ve|ll)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+", re.ASCII)
"""The ``ByteLevel`` pre-tokenizer's pattern, for ASCII."""

EncodeBatch = Callable[[Sequence[str]], list[list[int]]]


def splits_into_words(fields: Mapping[str, object]) -> bool:
    """Whether a ``tokenizer.json`` cuts its texts in the way that this file knows, and adds nothing of its own."""
    cut = fields.get("pre_tokenizer")
    return (
        isinstance(cut, dict)
        and (cut.get("type"), cut.get("use_regex"), cut.get("add_prefix_space")) == ("ByteLevel", True, False)
        and fields.get("normalizer") is None
    )


class Words:
    """A bounded memory of words in front of ``encode_batch``, the tokenizer itself. Safe to share between threads."""

    def __init__(self, encode_batch: EncodeBatch) -> None:
        self._encode_batch = encode_batch
        self._kept: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def encode(self, text: str) -> list[int]:
        """The ids of an ASCII text. Keeps the interpreter lock."""
        words = _WORDS.findall(text)
        kept = self._kept
        ids: list[int] = []
        try:
            for word in words:
                ids += kept[word]
        except KeyError:
            return self._learn(text, words)
        return ids

    def _learn(self, text: str, words: list[str]) -> list[int]:
        """Ask for the new words; if they are many, for the whole text and for some of them."""
        kept = self._kept
        missing = [word for word in dict.fromkeys(words) if word not in kept]
        if len(missing) > MAX_LEARNT:
            missing = [word for word in missing if len(word) <= LONGEST][:MAX_LEARNT]
            ids, *learnt = self._encode_batch([text, *missing])
            self._keep(dict(zip(missing, learnt, strict=True)))
            return ids
        new = dict(zip(missing, self._encode_batch(missing), strict=True))
        self._keep(new)
        return [token for word in words for token in (new[word] if word in new else kept[word])]

    def _keep(self, new: dict[str, list[int]]) -> None:
        if len(self._kept) + len(new) > MAX_WORDS:
            self._kept = {}  # another one: whoever reads the old one at this moment goes on with it
        self._kept.update((word, ids) for word, ids in new.items() if len(word) <= LONGEST)
