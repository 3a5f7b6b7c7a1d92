"""Sampled token ids to item deltas, one token at a time.

The form is the one of ``render.py``. A model can sample anything, so every sequence of ids means something here and
nothing raises:

- what follows START up to the next mark is a role: the model can only speak for itself, so that nothing is read off it
  but the phase of a message;
- an item begins when its kind is known, a call when its whole name is; one that is cut before that never begins;
- a mark that does not belong into the open item, START too, ends that item as incomplete and begins another;
- text or a mark outside any item begins one, as if START stood before it;
- END outside any item, STOP, and ids that the vocabulary does not have are passed over;
- a call that ends behind its name has empty arguments; a message that ends behind its role has no parts.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Literal

import msgspec

from respserver.schema.logprobs import Logprob
from respserver.tokens.roles import PHASE_OF_ROLE
from respserver.tokens.special import SPECIAL_COUNT, Special

ItemKind = Literal["message", "reasoning", "function_call", "custom_tool_call"]
PartKind = Literal["text", "refusal", "thought"]


class ItemBegan(msgspec.Struct, frozen=True, gc=False):
    """An item begins. ``name`` is a call's qualified name, ``phase`` a message's if the model said one."""

    kind: ItemKind
    name: str = ""
    phase: str = ""


class PartBegan(msgspec.Struct, frozen=True, gc=False):
    """A part of the open message or reasoning begins."""

    kind: PartKind


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """More text of the open part, or of the open call's arguments or input. Never empty."""

    text: str


class ScoredText(msgspec.Struct, frozen=True):
    """A ``TextDelta`` of a message, with the log probabilities of its tokens (``logprobs.py``)."""

    text: str
    logprobs: tuple[Logprob, ...]


class PartEnded(msgspec.Struct, frozen=True, gc=False):
    """The open part is over."""


class ItemEnded(msgspec.Struct, frozen=True, gc=False):
    """The open item is over; ``complete`` is False if something cut it."""

    complete: bool


Delta = ItemBegan | PartBegan | TextDelta | ScoredText | PartEnded | ItemEnded


_At = Literal["between", "role", "name", "text"]
"""Where in the form the last id left us. Compared for every token, and members of an enum are slow to get at."""

_PARTS: dict[int, tuple[ItemKind, PartKind]] = {
    Special.SEP: ("message", "text"),
    Special.REFUSAL: ("message", "refusal"),
    Special.THINK: ("reasoning", "thought"),
}
"""What a mark begins a part of."""
_CALLS: dict[int, ItemKind] = {Special.CALL: "function_call", Special.CUSTOM: "custom_tool_call"}


class OutputParser:
    """Reads one rollout's sampled ids. Deltas do not depend on how the ids are split into ``feed`` calls.

    ``token_bytes`` says what each id stands for (``Tokenizer.token_bytes``).
    """

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._begun = b""
        """The first bytes of a character that is not complete."""
        self._at: _At = "between"
        self._kind: ItemKind | None = None
        """The open item's; a call has it from its mark on, before it begins."""
        self._name: list[str] = []
        self._role: list[bytes] = []
        self.calls: list[tuple[str, int]] = []
        """The whole function calls so far: each one's name, and how many ids there were up to its end."""
        self._position = 0
        self._called = ""
        self._item_start = 0
        self._thought = 0

    @property
    def between_items(self) -> bool:
        """Whether the ids so far are whole items: no frame is open."""
        return self._at == "between"

    @property
    def in_message_text(self) -> bool:
        """Whether a part of a message is open."""
        return self._at == "text" and self._kind == "message"

    @property
    def position(self) -> int:
        """How many ids there were so far."""
        return self._position

    @property
    def unshown(self) -> int:
        """How many of the last ids belong to a frame of which no delta tells yet: its role, or a call's name."""
        return self._position - self._item_start if self._at in ("role", "name") else 0

    @property
    def reasoning_tokens(self) -> int:
        """How many ids belong to reasoning items, frames included."""
        return self._thought + (self._position - self._item_start if self._kind == "reasoning" else 0)

    def feed(self, ids: Sequence[int]) -> list[Delta]:
        """The deltas that the next ids make: at most one ``TextDelta`` for each.

        A token that completes no character makes none; its bytes come with the token that completes it.
        """
        deltas: list[Delta] = []
        table = self._token_bytes
        size = len(table)
        for position, token in enumerate(ids, self._position):
            if not SPECIAL_COUNT <= token < size:
                deltas += self._mark(token, position)
            elif self._at == "text":
                text = self._decode(table[token])
                if text:
                    deltas.append(TextDelta(text))
            else:
                deltas += self._stray(table[token], position)
        self._position += len(ids)
        return deltas

    def finish(self) -> list[Delta]:
        """Close what is open as incomplete: a limit or a fault ended the sampling.

        Afterwards ``between_items`` is True though the ids broke off inside a frame; ask it before.
        """
        return self._close(self._position, complete=False)

    def _mark(self, token: int, position: int) -> list[Delta]:
        """Obey a special token; ids that are none do nothing."""
        if self._at == "name" and token == Special.SEP:
            return self._call_named()
        if token in _PARTS:
            return self._part(*_PARTS[token], position)
        if token in _CALLS:
            deltas = self._make_room(position)
            self._at, self._kind = "name", _CALLS[token]
            return deltas
        if token == Special.START:
            deltas = self._close(position, complete=False)
            self._at, self._item_start = "role", position
            self._role.clear()
            return deltas
        if token == Special.END:
            return self._end(position + 1)
        return []

    def _stray(self, data: bytes, position: int) -> list[Delta]:
        """Take text where no text is open: a piece of a name, of a role, or the start of a message without frame."""
        if self._at == "role":
            self._role.append(data)
            return []
        if self._at == "name":
            self._name.append(self._decode(data))
            return []
        deltas = self._part("message", "text", position)
        text = self._decode(data)
        return [*deltas, TextDelta(text)] if text else deltas

    def _part(self, kind: ItemKind, part: PartKind, position: int) -> list[Delta]:
        """Begin a part: the next one of the open item, or the first one of a new item."""
        if self._at == "text" and self._kind == kind:
            return [*self._end_text(), PartBegan(part)]
        phase = self._phase() if kind == "message" else ""
        deltas = self._make_room(position)
        self._at, self._kind = "text", kind
        return [*deltas, ItemBegan(kind, phase=phase), PartBegan(part)]

    def _phase(self) -> str:
        """What the role of the frame that is only now becoming an item says of a message's phase."""
        return PHASE_OF_ROLE.get(b"".join(self._role), "") if self._at == "role" else ""

    def _make_room(self, position: int) -> list[Delta]:
        """Get ready for a mark that begins an item: inside a frame that has only said its role, or in one of its own
        that begins at the mark."""
        if self._at == "role":
            return []
        deltas = self._close(position, complete=False)
        self._item_start = position
        return deltas

    def _call_named(self) -> list[Delta]:
        """Begin the call whose name is whole."""
        assert self._kind is not None  # _mark sets it together with NAME
        name = "".join(self._name) + self._rest()
        self._name.clear()
        self._at = "text"
        self._called = name
        return [ItemBegan(self._kind, name)]

    def _end(self, position: int) -> list[Delta]:
        """Obey END; an item whose kind or name is whole only now begins and ends in one."""
        if self._at == "role":
            phase = self._phase()
            self._at = "between"
            return [ItemBegan("message", phase=phase), ItemEnded(True)]
        began = self._call_named() if self._at == "name" else []
        return began + self._close(position, complete=True)

    def _close(self, position: int, *, complete: bool) -> list[Delta]:
        """End the item that is open, if one is; ``position`` is the first one behind it."""
        ended: list[Delta] = [*self._end_text(), ItemEnded(complete)] if self._at == "text" else []
        if self._kind == "reasoning":
            self._thought += position - self._item_start
        elif self._kind == "function_call" and ended and complete:
            self.calls.append((self._called, position))
        self._at, self._kind = "between", None
        self._name.clear()
        self._rest()
        return ended

    def _end_text(self) -> list[Delta]:
        """End the open part, or a call's arguments: flush what is left of a character, as U+FFFD."""
        rest = self._rest()
        deltas: list[Delta] = [TextDelta(rest)] if rest else []
        return deltas if self._kind in _CALLS.values() else [*deltas, PartEnded()]

    def _decode(self, data: bytes) -> str:
        """The characters that these bytes complete."""
        if not self._begun:
            try:
                return data.decode()  # nearly every token is whole characters
            except UnicodeDecodeError:
                pass
        data = self._begun + data
        text, used = codecs.utf_8_decode(data, "replace", False)
        self._begun = data[used:]
        return text

    def _rest(self) -> str:
        """What is left of a character that was not completed, as U+FFFD."""
        rest, self._begun = self._begun, b""
        return rest.decode("utf-8", "replace")
