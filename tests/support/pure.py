"""What the tests of the pure rooms are built with: frames, fields, items, a clockless turn. No trio, no sockets."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

from msgspec import Raw

from respserver.config import Mode
from respserver.protocol.chain import Context, Latest
from respserver.protocol.commands import Create
from respserver.protocol.emitter import Emitter
from respserver.protocol.lane import Lane
from respserver.protocol.open_item import ReasoningShown
from respserver.protocol.validate import Fields, Transport, read_create
from respserver.schema.events import Event
from respserver.schema.input import read_input
from respserver.schema.items import InputItem
from respserver.schema.request import CreateRequest
from respserver.schema.response import Response, Usage
from respserver.state import OpenCall
from respserver.tokens.buffer import TokenBuffer
from respserver.tokens.parse import Delta, ItemBegan, ItemEnded, PartBegan, PartEnded, TextDelta

Json = dict[str, Any]

USAGE = Usage(input_tokens=3, output_tokens=4, total_tokens=7)
NOW = 1_790_000_000
SUMMARY = ReasoningShown(summary=True)


def create(**fields: Any) -> str:
    """The text of a ``response.create``; a field of None is sent as null, ``...`` leaves a default out."""
    frame = {"type": "response.create", "model": "sim", "input": "hi", **fields}
    return json.dumps({name: value for name, value in frame.items() if value is not ...})


def append(*items: Json, **fields: Any) -> str:
    """The text of a ``response.append``."""
    return json.dumps({"type": "response.append", "input": list(items), **fields})


def fields_of(**fields: Any) -> Fields:
    """Top-level fields as the codec splits them."""
    return {name: Raw(json.dumps(value).encode()) for name, value in fields.items()}


def read(transport: Transport = "websocket", *, options: Json | None = None, **fields: Any) -> CreateRequest:
    """A validated create with these fields, a model and an input unless they are ``...``."""
    given = {"model": "sim", "input": "hi", **fields}
    wanted = {name: value for name, value in given.items() if value is not ...}
    return read_create(fields_of(**wanted), transport, **(options or {}))


def items(*entries: Json | str) -> list[InputItem]:
    """Input items as they are read from a request."""
    return read_input(Raw(json.dumps(list(entries)).encode()))


def call(call_id: str, name: str = "look", **fields: Any) -> Json:
    """A function call as a client replays it."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}", **fields}


def custom_call(call_id: str, name: str = "exec", **fields: Any) -> Json:
    """A custom call as a client replays it."""
    return {"type": "custom_tool_call", "call_id": call_id, "name": name, "input": "ls", **fields}


def output(call_id: str, text: str = "ok", **fields: Any) -> Json:
    """The output of a function call."""
    return {"type": "function_call_output", "call_id": call_id, "output": text, **fields}


def custom_output(call_id: str, text: str = "ok", **fields: Any) -> Json:
    """The output of a custom call."""
    return {"type": "custom_tool_call_output", "call_id": call_id, "output": text, **fields}


def user(text: str = "go on", **fields: Any) -> Json:
    """A user message in its shortest form."""
    return {"role": "user", "content": text, **fields}


def assistant(text: str, **fields: Any) -> Json:
    """An assistant message as clients replay it."""
    part = {"type": "output_text", "text": text}
    return {"type": "message", "role": "assistant", "content": [part], **fields}


def open_calls(*call_ids: str, kind: str = "function_call") -> dict[str, OpenCall]:
    """Calls that wait for their outputs, in this order."""
    return {call_id: OpenCall(call_id, kind, f"tool_of_{call_id}") for call_id in call_ids}


def context(*call_ids: str, item_ids: Iterable[str] = (), call_ids_before: Iterable[str] = ()) -> Context:
    """A chain's end at which these function calls are open."""
    return Context(
        buffer=TokenBuffer(),
        fingerprint="words/1",
        open_calls=open_calls(*call_ids),
        item_ids=set(item_ids),
        call_ids={*call_ids, *call_ids_before},
    )


def latest(response_id: str, *call_ids: str) -> Latest:
    """A connection cache entry."""
    return Latest(response_id=response_id, context=context(*call_ids))


class Ids:
    """Ids that count: ``msg_1``, ``call_2``."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers)}"


def response(response_id: str = "resp_1", **fields: Any) -> Response:
    """A Response as a turn begins."""
    return Response(id=response_id, created_at=NOW, model="sim", **fields)


def emitter(**options: Any) -> Emitter:
    """An emitter with counting ids."""
    return Emitter(options.pop("response", None) or response(), options.pop("new_id", None) or Ids(), **options)


def message(*texts: str, refusal: str | None = None, complete: bool = True) -> list[Delta]:
    """The deltas of a message: one text part each, then perhaps a refusal."""
    deltas: list[Delta] = [ItemBegan("message")]
    for text in texts:
        deltas += [PartBegan("text"), *_texts(text), PartEnded()]
    if refusal is not None:
        deltas += [PartBegan("refusal"), *_texts(refusal), PartEnded()]
    return [*deltas, ItemEnded(complete)]


def reasoning(*texts: str, complete: bool = True) -> list[Delta]:
    """The deltas of a reasoning item."""
    deltas: list[Delta] = [ItemBegan("reasoning")]
    for text in texts:
        deltas += [PartBegan("thought"), *_texts(text), PartEnded()]
    return [*deltas, ItemEnded(complete)]


def calling(name: str, *arguments: str, custom: bool = False, complete: bool = True) -> list[Delta]:
    """The deltas of a call, its arguments in these pieces."""
    began = ItemBegan("custom_tool_call" if custom else "function_call", name)
    return [began, *(TextDelta(piece) for piece in arguments), ItemEnded(complete)]


def _texts(text: str) -> list[Delta]:
    """A text in words, each with the blanks behind it; an empty text makes no delta."""
    words = text.split(" ")
    pieces = [*(f"{word} " for word in words[:-1]), words[-1]]
    return [TextDelta(piece) for piece in pieces if piece]


def feed(emitter: Emitter, *deltas: list[Delta]) -> list[Event]:
    """The events of these deltas."""
    return [event for group in deltas for delta in group for event in emitter.feed(delta)]


def sent(lane: Lane, events: Iterable[Event]) -> list[Json]:
    """Events as a client sees them."""
    return [json.loads(lane.send_event(event)) for event in events]


def shown(events: Iterable[Event]) -> list[Json]:
    """Events as the client of a lane sees them that can also pause."""
    lane = Lane(Mode.PROTOTYPE)
    lane.begin(Create(request=read()))
    return sent(lane, events)


def types_of(events: Iterable[Event]) -> list[str]:
    """Wire names of events, without ``response.``."""
    return [str(event.__struct_config__.tag).removeprefix("response.") for event in events]
