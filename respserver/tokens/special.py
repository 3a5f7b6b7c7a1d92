"""The special tokens: the marks that frame items in a context. They have fixed low ids, the same in every rendering.

No text ever becomes one of them (``tokenizer.py``), so a mark in a context was put there by the template or sampled by
the model.
"""

from __future__ import annotations

from enum import IntEnum


class Special(IntEnum):
    """A mark by its token id; ``text`` is how it is written down in the tokenizer's file."""

    START = 0
    """An item begins; its role follows as text."""
    SEP = 1
    """Text follows: a content part, or what a call is given after its name."""
    END = 2
    """The item ends."""
    STOP = 3
    """The model's turn ends. Never part of a context."""
    THINK = 4
    """A part of reasoning follows."""
    REFUSAL = 5
    """A refusal follows."""
    CALL = 6
    """The name of a function follows."""
    CUSTOM = 7
    """The name of a custom tool follows."""
    PAD = 8
    """Takes the room of what is not text: an image or a file stands as its name and so many of these."""

    @property
    def text(self) -> str:
        """The token's text, as in ``<|im_start|>``."""
        return f"<|im_{self.name.lower()}|>"


SPECIAL_COUNT = len(Special)
"""The first id that stands for text."""


def is_special(token: int) -> bool:
    """Whether a token id is a mark and no text."""
    return token < SPECIAL_COUNT
