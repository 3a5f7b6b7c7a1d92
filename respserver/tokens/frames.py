"""A context's ids as frames again, and the newest part of them that fits.

What may be dropped goes as a whole: a stretch of the model's own items with the outputs of its calls, a message, an
item of a kind that is not read. So a call never stands without its output, nor an output without its call, and
reasoning stays with what it led to.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Hashable
from itertools import pairwise

import msgspec

from respserver.tokens.render import Template
from respserver.tokens.roles import OUTPUT_ROLES, RoleTable, role_table
from respserver.tokens.special import SPECIAL_COUNT, Special

FIRST_LOOK = 2
"""So many times the room is looked at first: one long group may stand at its beginning."""
_CALLS = (Special.CALL, Special.CUSTOM)


class Frame(msgspec.Struct, frozen=True):
    """One item: from index ``start`` to ``end``. ``calls`` and ``answers`` say which call it makes or answers, by
    whatever tells calls apart in the context."""

    start: int
    end: int
    role: str
    calls: Hashable = None
    answers: Hashable = None


class _Group(msgspec.Struct):
    """Frames that are kept or dropped together."""

    frames: list[Frame]
    is_models: bool = False
    """Whether it begins with the model's own items."""
    open_calls: list[Hashable] = []

    @property
    def is_orphan(self) -> bool:
        """Whether it begins with the output of a call that was not seen."""
        return self.frames[0].answers is not None

    @property
    def size(self) -> int:
        return sum(frame.end - frame.start for frame in self.frames)


def newest(ids: array[int], template: Template, room: int, *, has_tools: bool = True) -> array[int]:
    """What is left of ``ids`` when the oldest groups of items are dropped until ``room`` tokens hold them.

    The newest user message, tools that items put on offer, and the group of the newest item stay, also if they take
    more. Without tools anywhere (``has_tools``) only as much of the end is looked at as decides the question.
    """
    span = len(ids) if has_tools else FIRST_LOOK * max(room, 1)
    while span < len(ids):
        found = _newest_of_end(ids[len(ids) - span :], template, room)
        if found is not None:
            return found
        span *= 2
    groups = _grouped(read_frames(ids, template))
    return _without(ids, _dropped(groups, len(ids), room))


def _newest_of_end(ids: array[int], template: Template, room: int) -> array[int] | None:
    """The same if the end of a context decides it: it holds the newest user message and the whole group of the newest
    item, and beside what belongs to groups that begin before it there is no room to spare. None if it does not."""
    if Special.START not in ids:
        return None
    ids = ids[ids.index(Special.START) :]
    groups = _grouped(read_frames(ids, template))
    older = [group for at, group in enumerate(groups) if group.is_orphan or (group.is_models and at == 0)]
    groups = [group for group in groups if not any(group is one for one in older)]
    frames = [frame for group in groups for frame in group.frames]
    size = sum(group.size for group in groups)
    has_newest = any(frame.role == "user" for frame in frames) and max(frame.end for frame in frames) == len(ids)
    if size < room or not has_newest:
        return None
    return _without(ids, [frame for group in older for frame in group.frames] + _dropped(groups, size, room))


def _dropped(groups: list[_Group], size: int, room: int) -> list[Frame]:
    """The frames of the oldest groups that must go until ``size`` tokens are ``room``."""
    kept = _kept_for_good(groups)
    dropped: list[Frame] = []
    for number, group in enumerate(groups):
        if size <= room:
            break
        if number not in kept:
            size -= group.size
            dropped += group.frames
    return dropped


def read_frames(ids: array[int], template: Template) -> list[Frame]:
    """The frames of a context, one after the other, without gaps: ids outside of any belong to the one before."""
    if not ids:
        return []
    roles = role_table(template.tokenise)
    bounds = [0]
    for _ in range(ids.count(Special.START) - (ids[0] == Special.START)):
        bounds.append(ids.index(Special.START, bounds[-1] + 1))
    bounds.append(len(ids))
    return [_frame(ids, start, end, template, roles) for start, end in pairwise(bounds)]


def _frame(ids: array[int], start: int, end: int, template: Template, roles: RoleTable) -> Frame:
    mark = _next_mark(ids, start + 1, end)
    role = roles.get(tuple(ids[start + 1 : mark]), "")
    name: Hashable = None
    if mark < end and ids[mark] in _CALLS:
        name = ids[mark], template.tokenizer.decode(ids[mark + 1 : _next_mark(ids, mark + 1, end)])
    if role in OUTPUT_ROLES:
        return Frame(start, end, role, answers=name)
    if role == "item":
        return _opaque(template.tokenizer.decode(ids[mark:end]), start, end)
    return Frame(start, end, role, calls=name)


def _next_mark(ids: array[int], at: int, end: int) -> int:
    """Where the next special id stands, or the end. Roles and names are short, and nothing else is looked at."""
    while at < end and ids[at] >= SPECIAL_COUNT:
        at += 1
    return at


def _opaque(text: str, start: int, end: int) -> Frame:
    """An item of a kind that is not read: its JSON may name a call, or an approval that is asked for and given."""
    try:
        fields = json.loads(text)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        return Frame(start, end, "item")
    kind = str(fields.get("type", ""))
    if kind in ("mcp_approval_request", "mcp_approval_response"):
        asked = kind == "mcp_approval_request"
        key: Hashable = str(fields.get("id" if asked else "approval_request_id", ""))
        return Frame(start, end, "item", calls=key) if asked else Frame(start, end, "item", answers=key)
    key = str(fields["call_id"]) if "call_id" in fields else None
    return Frame(start, end, "item", answers=key) if kind.endswith("_output") else Frame(start, end, "item", calls=key)


def _grouped(frames: list[Frame]) -> list[_Group]:
    groups: list[_Group] = []
    for frame in frames:
        group = _answered(groups, frame) if frame.answers is not None else None
        if group is None and frame.role == "assistant" and groups and _only_spoke(groups[-1]):
            group = groups[-1]
        if group is None:
            group = _Group([], is_models=frame.role == "assistant")
            groups.append(group)
        group.frames.append(frame)
        if frame.calls is not None:
            group.open_calls.append(frame.calls)
    return groups


def _answered(groups: list[_Group], frame: Frame) -> _Group | None:
    """The newest group with an open call that this output answers; it answers that one."""
    for group in reversed(groups):
        if frame.answers in group.open_calls:
            group.open_calls.remove(frame.answers)
            return group
    return None


def _only_spoke(group: _Group) -> bool:
    """Whether the model's stretch goes on: no output has come yet."""
    return group.is_models and group.frames[-1].role == "assistant"


def _kept_for_good(groups: list[_Group]) -> set[int]:
    kept = {number for number, group in enumerate(groups) if group.frames[0].role == "tools"}
    asked = [number for number, group in enumerate(groups) if group.frames[0].role == "user"]
    latest = max(range(len(groups)), key=lambda number: groups[number].frames[-1].start, default=None)
    return kept.union(asked[-1:], () if latest is None else (latest,))


def _without(ids: array[int], dropped: list[Frame]) -> array[int]:
    left, at = array("I"), 0
    for frame in sorted(dropped, key=lambda frame: frame.start):
        left += ids[at : frame.start]
        at = frame.end
    return left + ids[at:]
