"""A small parser for event streams, written from the standard's rules and fed in pieces of any size."""

from __future__ import annotations

import codecs
from typing import NamedTuple


class SseEvent(NamedTuple):
    """One dispatched event."""

    type: str
    data: str
    id: str | None


class SseReader:
    """Feed it bytes; complete events come out. Comments and blocks without data are passed over.

    Of the line ends that the standard allows only LF is taken: any other in a stream of ours is a fault.
    """

    def __init__(self) -> None:
        self.comments = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._type = "message"
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """The events that these bytes complete."""
        self._text += self._decoder.decode(chunk)
        assert "\r" not in self._text
        *lines, self._text = self._text.split("\n")
        return [event for line in lines for event in self._line(line)]

    @property
    def is_between_events(self) -> bool:
        """Whether nothing is left over."""
        return not self._text and not self._data

    def _line(self, line: str) -> list[SseEvent]:
        if not line:
            return self._dispatch()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            self.comments += 1
        elif name == "event":
            self._type = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
        return []

    def _dispatch(self) -> list[SseEvent]:
        events = [SseEvent(self._type, "\n".join(self._data), self._id)] if self._data else []
        self._type, self._data = "message", []
        return events
