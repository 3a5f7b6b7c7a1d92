"""Text to token ids and back: a byte-level BPE from the data of a ``tokenizer.json``.

The data is an argument; reading the file is an outer room's work. The special tokens are taken out of the text side
altogether, so that no user's text can spell a mark (design.md section 6).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from tokenizers import Tokenizer as Backend

from respserver.tokens.special import SPECIAL_COUNT, Special
from respserver.tokens.words import Words, splits_into_words

DATA_FILE = "data/tokenizer.json"
"""The bundled tokenizer, relative to this package."""


class Tokenizer:
    """One vocabulary. ``fingerprint`` tells it from any other, ``size`` is the number of ids.

    ``data`` is the content of a ``tokenizer.json``: a byte-level BPE whose first ids are those of ``Special``. Raises
    ``ValueError`` for anything else. Safe to share between threads.
    """

    def __init__(self, data: bytes | str) -> None:
        raw = data.encode() if isinstance(data, str) else data
        fields = json.loads(raw)
        fields.update(added_tokens=[], post_processor=None, truncation=None, padding=None)
        vocabulary: dict[str, int] = fields["model"]["vocab"]
        if any(vocabulary.get(mark.text) != mark for mark in Special):
            raise ValueError("the tokenizer's first ids are not the special tokens")
        self.fingerprint = hashlib.sha256(raw).hexdigest()[:16]
        self.size = len(vocabulary)
        self.token_bytes: list[bytes] = _token_bytes(vocabulary)
        """What each id says, by id; nothing for special ids. A token may hold part of a character only."""
        self._backend = Backend.from_str(json.dumps(fields))
        self._model = self._backend.model
        self._words = Words(self._encode_word) if splits_into_words(fields) else None

    def encode(self, text: str) -> list[int]:
        """The ids of one text; none of them is special. Half a surrogate pair, which JSON cannot carry, becomes a
        question mark."""
        return self.encode_batch([text])[0]

    def encode_short(self, texts: Sequence[str]) -> list[list[int]]:
        """What ``encode_batch`` gives, sooner for texts of a few KB, whose words are mostly known. No other thread runs
        meanwhile."""
        words = self._words
        if words is None:
            return self.encode_batch(texts)
        return [words.encode(text) if text.isascii() else self.encode(text) for text in texts]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text by itself, as ``encode`` gives them. Other threads run meanwhile."""
        # encode_batch_fast lets go of the interpreter lock and keeps no offsets; encode does neither.
        try:
            encodings = self._backend.encode_batch_fast(texts, add_special_tokens=False)
        except TypeError:
            # What it says of text that has no UTF-8 form. Looking for such text beforehand would cost every call.
            whole = [text.encode("utf-8", "replace").decode() for text in texts]
            encodings = self._backend.encode_batch_fast(whole, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def _encode_word(self, word: str) -> list[int]:
        """The ids of one ASCII word as the pre-tokenizer cuts it, from the model alone, in a third of the time."""
        return [token.id for token in self._model.tokenize(word.translate(_SPELLED))]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids. Special ids say nothing; bytes that make no character become U+FFFD."""
        table = self.token_bytes
        return b"".join([table[token] for token in ids]).decode("utf-8", "replace")


def _token_bytes(vocabulary: dict[str, int]) -> list[bytes]:
    if sorted(vocabulary.values()) != list(range(len(vocabulary))):
        raise ValueError("the tokenizer's ids have gaps")
    table = [b""] * len(vocabulary)
    for text, token in vocabulary.items():
        if token >= SPECIAL_COUNT:
            table[token] = bytes([_BYTE_OF[character] for character in text])
    return table


def _byte_alphabet() -> dict[str, int]:
    """The byte that each character of a byte-level vocabulary stands for.

    Bytes that are visible Latin-1 characters stand for themselves; the others, in order, take the characters from
    U+0100 on.
    """
    visible = {byte for byte in range(256) if chr(byte).isprintable() and not chr(byte).isspace()}
    hidden = [byte for byte in range(256) if byte not in visible]
    return {chr(byte): byte for byte in visible} | {chr(0x100 + at): byte for at, byte in enumerate(hidden)}


_BYTE_OF = _byte_alphabet()
_SPELLED = {byte: character for character, byte in _BYTE_OF.items() if byte < 0x80}
"""How a byte-level vocabulary spells ASCII characters, by code point."""
