"""What the embedded model sees: token ids, split into items as they come.

Only new ids are ever looked at, and only what an answer may need is kept of them: counts, the items since the model
last spoke, where user messages and tool definitions stand. So a turn costs the same whatever lies behind it. Text is
decoded when somebody asks for it.
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Sequence as Ids

import msgspec

from respserver.engines.sim.offer import OfferedTool, read_offer
from respserver.tokens.render import Template
from respserver.tokens.roles import HOSTED, RoleTable
from respserver.tokens.special import SPECIAL_COUNT, Special

MESSAGE_ROLES = ("user", "system", "developer")
_MARK_BYTES = re.compile(b"[" + re.escape(bytes(mark for mark in Special if mark != Special.PAD)) + b"]")
"""PAD says nothing, it only takes room inside a field."""
_FRAME = (Special.START, Special.END)


class Field(msgspec.Struct, frozen=True, gc=False):
    """A stretch of text inside an item: the special id before it, and where it begins and ends."""

    mark: int
    start: int
    end: int


class Item(msgspec.Struct, frozen=True):
    """One item of the context."""

    role: str
    fields: tuple[Field, ...]

    @property
    def texts(self) -> tuple[Field, ...]:
        """The parts that carry text: not the name of a call."""
        return tuple(field for field in self.fields if field.mark not in (Special.CALL, Special.CUSTOM))


class Context:
    """The ids of one sequence and what has been read of them."""

    def __init__(self, template: Template, roles: RoleTable) -> None:
        self._template = template
        self._roles = roles
        self.ids: array[int] = array("I")
        self.stretches: array[int] = array("I")
        """How often the model has spoken: stretches of its items, up to what others have said. A stretch in which the
        server has run tools by itself may be several runs: it counts its items, any other 0."""
        self.tail: list[Item] = []
        """Messages and tool outputs since the model last spoke."""
        self.users: list[Item] = []
        """All user messages, in order."""
        self._tool_lists: list[Item] = []
        self._tools: dict[str, OfferedTool] = {}
        self.ran_hosted = False
        """Whether any stretch is of that kind."""
        self._read_to = 0
        self._model_spoke_last = False
        self._said = 0
        """Items of the model in the last stretch."""

    def copy(self) -> Context:
        """A second context with the same ids."""
        other = Context(self._template, self._roles)
        other.ids = self.ids[:]
        other.stretches = self.stretches[:]
        other.ran_hosted = self.ran_hosted
        other._said = self._said
        other.tail = self.tail[:]
        other.users = self.users[:]
        other._tool_lists = self._tool_lists[:]
        other._tools = self._tools.copy()
        other._read_to = self._read_to
        other._model_spoke_last = self._model_spoke_last
        return other

    def extend(self, ids: Ids[int]) -> None:
        """Append ids; they are read when next needed."""
        self.ids.extend(ids)

    def forget(self, count: int) -> None:
        """Drop the last ``count`` ids, which must not have been read."""
        del self.ids[len(self.ids) - count :]

    def runs(self, sizes: Ids[int]) -> int:
        """How many runs the model has had, if each says as many items as ``sizes`` says, over and over."""
        runs = 0
        for said in self.stretches:
            runs += 1
            said -= _size(sizes, runs - 1)
            while said > 0:
                runs += 1
                said -= _size(sizes, runs - 1)
        return runs

    def read(self) -> None:
        """Split what is new into items. An item that is still open at the end is left for later."""
        marks = self._unread_marks()
        opened: int | None = None
        for number, at in enumerate(marks):
            mark = self.ids[at]
            if mark not in _FRAME:
                continue
            if opened is not None:
                self._take(marks[opened:number], at)
                opened = None
            if mark == Special.START:
                opened = number
        self._read_to = len(self.ids) if opened is None else marks[opened]

    def text(self, item: Item, limit: int | None = None) -> str:
        """An item's text parts, one a line. ``limit`` cuts it to so many characters and says so."""
        parts: list[str] = []
        left = limit
        for field in item.texts:
            part = self._decode(field, left)
            parts.append(part)
            if left is not None:
                left -= len(part)
                if left < 0:
                    break
        joined = "\n".join(parts)
        return joined if limit is None or len(joined) <= limit else f"{joined[:limit]}…"

    def tool_name(self, item: Item) -> str:
        """The qualified name of the tool whose output this item is; empty if it is not known."""
        return next((self._decode(field) for field in item.fields if field.mark in (Special.CALL, Special.CUSTOM)), "")

    def tools(self) -> dict[str, OfferedTool]:
        """The tools on offer by qualified name: those of the head, then those that items added. Raises ``ModelFault``
        if a list cannot be read."""
        for item in self._tool_lists:
            self._tools.update((tool.name, tool) for tool in read_offer(self.text(item)))
        self._tool_lists = []
        return self._tools

    def _unread_marks(self) -> list[int]:
        """Where the special ids are. The lowest byte of each id is searched first: twenty times faster than looking at
        numbers, and few ids of text share it."""
        ids, base, width = self.ids, self._read_to, self.ids.itemsize
        lowest = ids[base:].tobytes()[0 if sys.byteorder == "little" else width - 1 :: width]
        return [at for found in _MARK_BYTES.finditer(lowest) if ids[at := base + found.start()] < SPECIAL_COUNT]

    def _take(self, marks: list[int], end: int) -> None:
        """Read one item: ``marks`` are its special ids from START on, ``end`` the id behind it."""
        bounds = [*marks[1:], end]
        role = self._roles.get(tuple(self.ids[marks[0] + 1 : bounds[0]]), "")
        fields = tuple(
            Field(self.ids[mark], mark + 1, following) for mark, following in zip(marks[1:], bounds[1:], strict=True)
        )
        item = Item(role, fields)
        if role == "assistant":
            if not self._model_spoke_last:
                self.stretches.append(0)
                self._said = 0
            self._model_spoke_last = True
            self._said += 1
            if self.stretches[-1]:
                self.stretches[-1] = self._said
            self.tail = []
        elif role == HOSTED:
            if self._model_spoke_last:
                self.stretches[-1] = self._said
                self.ran_hosted = True
            self.tail.append(item)
        elif role == "tools":
            self._tool_lists.append(item)
        elif role == "tool" or role in MESSAGE_ROLES:
            self._model_spoke_last = False
            self.tail.append(item)
            if role == "user":
                self.users.append(item)

    def _decode(self, field: Field, limit: int | None = None) -> str:
        """Text of a field. A token is at least one byte and a character at most four, so that more than 4 tokens a
        character need never be decoded."""
        end = field.end if limit is None else min(field.end, field.start + 4 * (limit + 1))
        return self._template.tokenizer.decode(self.ids[field.start : end])


def _size(sizes: Ids[int], run: int) -> int:
    return max(1, sizes[run % len(sizes)]) if sizes else 1
