"""A client that believes only the events: it rebuilds every item from them and checks each against what it has."""

from __future__ import annotations

import copy
from typing import Any

Json = dict[str, Any]
TERMINALS = {"response.completed", "response.incomplete", "response.failed"}

_TEXT_OF = {
    "response.output_text": ("content", "content_index", "text"),
    "response.refusal": ("content", "content_index", "refusal"),
    "response.reasoning_summary_text": ("summary", "summary_index", "text"),
}
"""Where the text of a part grows, by the events' common name: the item's list, the event's index, the part's field."""
_FIELD_OF = {
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
    "response.mcp_call_arguments": "arguments",
}
_FILLED_AT_END = {
    "mcp_call": {"status", "output", "error"},
    "mcp_list_tools": {"tools", "error"},
    "mcp_approval_request": set[str](),
    "web_search_call": {"status", "action", "encrypted_content"},
}
"""Items of the server's own tools, with what only their end tells: they stay open while others begin and end."""
_OWN_TOOLS = tuple(f"response.{kind}" for kind in _FILLED_AT_END)
_PARTS_OF = {
    "response.content_part": ("content", "content_index"),
    "response.reasoning_summary_part": ("summary", "summary_index"),
}


class Replay:
    """Feed it the decoded events of one response in order. ``items`` is what they add up to.

    Raises ``AssertionError`` at the first event that does not follow from those before it.
    """

    def __init__(self) -> None:
        self.items: list[Json] = []
        self.response: Json | None = None
        """The last snapshot."""
        self.is_over = False
        self._count = 0
        self._open: int | None = None
        self._own: set[int] = set()
        """Items of the server's own tools that are not done."""
        self._paused_at = 0

    def feed(self, event: Json) -> None:
        """Take one event."""
        assert not self.is_over, "an event after the terminal one"
        assert event["sequence_number"] == self._count
        self._count += 1
        kind, _, moment = event["type"].rpartition(".")
        if "response" in event:
            self._snapshot(event)
        elif kind == "response.output_item":
            self._item(moment, event)
        elif kind in _OWN_TOOLS:
            assert event["output_index"] in self._own
            assert event["item_id"] == self.items[event["output_index"]]["id"]
        elif kind == "response.output_text.annotation":
            part = self._item_of(event)["content"][event["content_index"]]
            assert event["annotation_index"] == len(part["annotations"])
            part["annotations"].append(event["annotation"])
        elif kind in _PARTS_OF:
            self._part(*_PARTS_OF[kind], moment, event)
        elif kind in _TEXT_OF:
            listed, index, field = _TEXT_OF[kind]
            self._grow(self._item_of(event)[listed][event[index]], field, moment, event)
        else:
            self._grow(self._item_of(event), _FIELD_OF[kind], moment, event)

    def _snapshot(self, event: Json) -> None:
        snapshot = event["response"]
        assert self.response is None or snapshot["id"] == self.response["id"]
        assert (self.response is None) == (event["type"] == "response.created")
        self.response = snapshot
        if event["type"] == "response.done":
            self._settled(snapshot["output"], self.items[self._paused_at :])
            self._paused_at = len(self.items)
        elif event["type"] in TERMINALS:
            self._settled(snapshot["output"], self.items)
            self.is_over = True
        else:
            assert snapshot["output"] == []

    def _settled(self, shown: list[Json], rebuilt: list[Json]) -> None:
        assert self._open is None, "an item was left open"
        assert not self._own, "a call of the server's own was left open"
        assert shown == rebuilt

    def _item(self, moment: str, event: Json) -> None:
        index, item = event["output_index"], event["item"]
        if item["type"] in _FILLED_AT_END:
            self._own_item(moment, index, item)
            return
        if moment == "added":
            assert self._open is None, "an item began inside another"
            assert index == len(self.items)
            assert item["status"] == "in_progress"
            self.items.append(copy.deepcopy(item))
            self._open = index
            return
        assert index == self._open
        self._open = None
        assert item["status"] in {"completed", "incomplete"}
        told_last = ("status", "encrypted_content")  # only a whole item can be sealed
        self.items[index] |= {name: item[name] for name in told_last if name in item}
        assert item == self.items[index]

    def _own_item(self, moment: str, index: int, item: Json) -> None:
        if moment == "added":
            assert self._open is None, "an item began inside another"
            assert index == len(self.items)
            self.items.append(copy.deepcopy(item))
            self._own.add(index)
            return
        self._own.remove(index)
        told = {name: value for name, value in item.items() if name in _FILLED_AT_END[item["type"]]}
        self.items[index] |= copy.deepcopy(told)
        assert item == self.items[index]

    def _part(self, listed: str, index: str, moment: str, event: Json) -> None:
        parts = self._item_of(event)[listed]
        if moment == "added":
            assert event[index] == len(parts)
            parts.append(copy.deepcopy(event["part"]))
        else:
            assert event[index] == len(parts) - 1
            assert _streamed(event["part"]) == parts[-1]
            parts[-1] = copy.deepcopy(event["part"])

    def _grow(self, holder: Json, field: str, moment: str, event: Json) -> None:
        if moment == "delta":
            holder[field] += event["delta"]
        else:
            assert event[field] == holder[field]
        if "logprobs" in event:
            told = holder["logprobs"]
            if moment == "delta":
                told += event["logprobs"]
            else:
                assert event["logprobs"] == told

    def _item_of(self, event: Json) -> Json:
        assert event["output_index"] in self._own or event["output_index"] == self._open
        item = self.items[event["output_index"]]
        assert event["item_id"] == item["id"]
        return item


def _streamed(part: Json) -> Json:
    """A part as its events tell of it: only the part has the bytes of its tokens."""
    if not part.get("logprobs"):
        return part
    return {**part, "logprobs": [_without_bytes(one) for one in part["logprobs"]]}


def _without_bytes(logprob: Json) -> Json:
    tops = [{"token": top["token"], "logprob": top["logprob"]} for top in logprob["top_logprobs"]]
    return {"token": logprob["token"], "logprob": logprob["logprob"], "top_logprobs": tops}
