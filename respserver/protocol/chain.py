"""What continues a chain, and how calls and outputs pair up.

Only the new items of a request are ever looked at: the past is known by the sets kept in ``Context`` (open calls, call
ids, item ids), so the work of a turn does not grow with history (design.md section 5).
"""

from __future__ import annotations

import msgspec

from respserver.errors import InvalidAppend, InvalidField, NoToolCall, NoToolOutput
from respserver.schema.items import (
    CALL_KIND_OF_OUTPUT,
    OUTPUT_KIND_OF_CALL,
    ApprovalRequestItem,
    ApprovalResponseItem,
    CallOutputItem,
    FunctionCallItem,
    InputItem,
    McpCall,
    McpCallItem,
    McpListTools,
    McpToolsItem,
    MessageItem,
    OpaqueItem,
    OutputItem,
    OutputMessage,
    OutputText,
    Reasoning,
    ReasoningItem,
    SearchItem,
    WebSearchCall,
)
from respserver.schema.tools import ToolDef, qualified_name
from respserver.state import OpenCall, StoredItem
from respserver.tokens.buffer import TokenBuffer


class Past(msgspec.Struct, frozen=True):
    """The turns before, newest first; shared by forks, walked only to render for another tokenizer."""

    items: list[StoredItem]
    before: Past | None = None
    size: int = 0
    """Bytes of all items up to here."""

    @classmethod
    def after(cls, before: Past | None, items: list[StoredItem]) -> Past:
        """One more turn."""
        size = sum(len(item.json) for item in items)
        return cls(items, before, size if before is None else before.size + size)


class Context(msgspec.Struct, kw_only=True):
    """The live end of a chain. It has one owner: a continuation on the same lane takes it, a fork copies it, a failed
    continuation drops it."""

    buffer: TokenBuffer
    fingerprint: str
    past: Past | None = None
    open_calls: dict[str, OpenCall] = {}
    item_ids: set[str] = set()
    call_ids: set[str] = set()
    added_tools: dict[str, ToolDef] = {}
    """What items of the context put on offer."""
    head_key: bytes = b""
    head_tokens: int = 0
    model: str = ""
    tools_digest: bytes = b""
    """What the last turn's head was made for: a comparison tells which of it changed."""
    verdict: str = ""
    """What the classifiers have said of the chain so far, encoded."""
    listed: set[str] = set()
    """Labels of the MCP servers whose tools the context lists."""
    sources: list[tuple[str, str]] = []
    """What the searches of the context have found, as addresses and titles: a text quotes them by number."""
    sequence: object | None = None
    """The engine's open run; opaque here, the rules never touch it."""

    def move(self) -> Context:
        """The same for the turn that goes on from it. A fork that still looks at this one finds no run here: that moves
        on from now on, and is no longer what the fork has copied."""
        moved = msgspec.structs.replace(self)
        self.sequence = None
        return moved

    def fork(self) -> Context:
        """An independent copy without the engine's run."""
        return Context(
            buffer=self.buffer.fork(),
            fingerprint=self.fingerprint,
            past=self.past,
            open_calls=dict(self.open_calls),
            item_ids=set(self.item_ids),
            call_ids=set(self.call_ids),
            added_tools=dict(self.added_tools),
            verdict=self.verdict,
            listed=set(self.listed),
            sources=list(self.sources),
        )


class Latest(msgspec.Struct, kw_only=True):
    """A lane's latest response: what the connection cache holds (protocol.md section 5.1)."""

    response_id: str
    context: Context
    stored: bool = False
    """Whether the store has it too."""


def pair(known: Context, items: list[InputItem], param: str = "input") -> list[InputItem]:
    """Check ids and pair each output with its call.

    Every call of the past and of ``items`` that is owed an output must find it, every output its call (protocol.md
    section 5.3); pairing goes by ``call_id`` alone. A parent's call that is sent again without an item id, next to
    its output, is the same call (some clients do that while chaining). ``known`` is only read.

    Returns the new items in the order in which they are rendered: outputs that stand together in call order.
    Raises ``NoToolOutput``, ``NoToolCall`` or ``InvalidField``.
    """
    opened = dict(known.open_calls)
    order = {call_id: index for index, call_id in enumerate(opened)}
    ids: set[str] = set()
    called: set[str] = set()
    kept: list[InputItem] = []
    for index, item in enumerate(items):
        _check_id(item, known.item_ids, ids, f"{param}[{index}].id")
        call_id = called_by(item)
        if call_id is not None:
            if item.id is None and call_id in known.open_calls:
                continue
            if call_id in known.call_ids or call_id in called:
                raise InvalidField(f"{param}[{index}].call_id", f"'{call_id}' was called before.")
            called.add(call_id)
            order[call_id] = len(order)
            if (call := _opened_by(item)) is not None:
                opened[call_id] = call
        elif (output_id := _answered_by(item)) is not None:
            item = _answer(opened, item, output_id)
        elif isinstance(item, McpCallItem) and item.approval_request_id not in known.call_ids | called:
            item = msgspec.structs.replace(item, approval_request_id=None)  # the call that was approved is not here
        kept.append(item)
    for call in opened.values():
        if call.owed:
            raise NoToolOutput(call.call_id, call.kind)
    return _in_call_order(kept, order)


def left_open(known: Context, items: list[InputItem]) -> dict[str, OpenCall]:
    """The calls whose outputs may still come once ``items``, which are paired, are part of the context."""
    opened = dict(known.open_calls)
    for item in items:
        if (call := _opened_by(item)) is not None:
            opened[call.call_id] = call
        elif (output_id := _answered_by(item)) is not None:
            opened.pop(output_id, None)
    return opened


def called_by(item: InputItem) -> str | None:
    """The ``call_id`` of a call that is paired with an output; None for all other items."""
    if isinstance(item, FunctionCallItem):
        return item.call_id
    if isinstance(item, OpaqueItem) and item.kind in OUTPUT_KIND_OF_CALL:
        return item.call_id
    return None


def duplicate_item(item_id: str, param: str) -> InvalidField:
    """An item id that the context holds already."""
    return InvalidField(param, f"duplicate item found with id '{item_id}'.", "duplicate_item_id")


def _opened_by(item: InputItem) -> OpenCall | None:
    """The call that an item makes, if an output can answer it."""
    if isinstance(item, FunctionCallItem) and item.complete:
        name = qualified_name(item.namespace, item.name)
        return OpenCall(item.call_id, item.kind, name, not item.is_async)
    if isinstance(item, ApprovalRequestItem) and item.call_id is not None:
        return OpenCall(item.call_id, item.kind, item.name, item.owed, item.arguments)
    if isinstance(item, OpaqueItem) and item.kind in OUTPUT_KIND_OF_CALL and item.call_id is not None:
        return OpenCall(item.call_id, item.kind, item.kind.removesuffix("_call"), item.owed)
    return None


def _answered_by(item: InputItem) -> str | None:
    if isinstance(item, CallOutputItem):
        return item.call_id
    if isinstance(item, OpaqueItem) and item.kind in CALL_KIND_OF_OUTPUT:
        return item.call_id
    return None


def _check_id(item: InputItem, known: set[str], ids: set[str], param: str) -> None:
    if item.id is None:
        return
    if item.id in known or item.id in ids:
        raise duplicate_item(item.id, param)
    ids.add(item.id)


def _answer(opened: dict[str, OpenCall], item: InputItem, call_id: str) -> InputItem:
    assert isinstance(item, CallOutputItem | OpaqueItem)  # no other kind answers anything
    call = opened.get(call_id)
    if call is None or not _fits(item.kind, call.kind):
        raise NoToolCall(call_id, CALL_KIND_OF_OUTPUT[item.kind])
    del opened[call_id]
    return _named(item, call)


def _named(item: CallOutputItem | OpaqueItem, call: OpenCall) -> CallOutputItem | OpaqueItem:
    """An output with what it needs of its call."""
    if isinstance(item, ApprovalResponseItem):
        return msgspec.structs.replace(item, name=call.name, arguments=call.arguments)
    return msgspec.structs.replace(item, name=call.name) if isinstance(item, CallOutputItem) else item


def _fits(output_kind: str, call_kind: str) -> bool:
    """Whether an output of one kind answers a call of the other. Codex answers ``local_shell_call`` like a function."""
    if output_kind == "function_call_output" and call_kind == "local_shell_call":
        return True
    return CALL_KIND_OF_OUTPUT[output_kind] == call_kind


def _in_call_order(items: list[InputItem], order: dict[str, int]) -> list[InputItem]:
    """Sort each run of outputs by call; our template names no call ids, so the order tells which is whose."""

    def place(output: CallOutputItem | ApprovalResponseItem) -> int:
        return order[output.call_id or ""]

    result: list[InputItem] = []
    run: list[CallOutputItem | ApprovalResponseItem] = []
    for item in items:
        if isinstance(item, CallOutputItem | ApprovalResponseItem):
            run.append(item)
        else:
            run.sort(key=place)
            result += [*run, item]
            run = []
    run.sort(key=place)
    return result + run


Answer = CallOutputItem | ApprovalResponseItem
"""What an append brings for a call."""


class Pause(msgspec.Struct, kw_only=True):
    """A suspended rollout as its lane sees it (design.md section 7)."""

    response_id: str
    open_calls: dict[str, OpenCall]
    emitted: list[OutputItem]
    """The server's items since the last pause, which some clients echo."""
    item_ids: set[str] = set()
    """Ids of the context so far."""
    answered: dict[str, Answer] = {}

    @property
    def missing(self) -> list[str]:
        """Call ids that still owe an output, in call order."""
        return [call_id for call_id in self.open_calls if call_id not in self.answered]

    def take(self, items: list[InputItem]) -> list[InputItem] | None:
        """Take the outputs of one append, all or none.

        Returns the items to go on with (outputs in call order, then user messages) once no call is missing, else None.
        Raises ``InvalidAppend``, or ``InvalidField`` for an item id that is taken; nothing is taken then.
        """
        start = self._skip_echo(items)
        taken: dict[str, Answer] = {}
        messages: list[InputItem] = []
        ids = {item.id for item in [*self.emitted, *self.answered.values()] if item.id}
        for index, item in enumerate(items[start:], start):
            _check_id(item, self.item_ids, ids, f"input[{index}].id")
            if isinstance(item, CallOutputItem) and not messages:
                taken[item.call_id] = self._accept(item, item.call_id, taken, f"input[{index}].call_id")
            elif isinstance(item, ApprovalResponseItem) and item.call_id is not None and not messages:
                place = f"input[{index}].approval_request_id"
                taken[item.call_id] = self._accept(item, item.call_id, taken, place)
            elif isinstance(item, MessageItem) and item.role == "user":
                messages.append(item)
            else:
                raise InvalidAppend(f"input[{index}]", "expected outputs of pending calls, then user messages.")
        if not taken:
            raise InvalidAppend("input", "expected the output of at least one pending call.")
        waiting = [call_id for call_id in self.missing if call_id not in taken]
        if waiting and messages:
            raise InvalidAppend(
                f"input[{len(items) - len(messages)}]",
                f"user messages may only come with the last pending output; still missing: {', '.join(waiting)}.",
            )
        self.answered = self.answered | taken
        if waiting:
            return None
        return [*(self.answered[call_id] for call_id in self.open_calls), *messages]

    def _accept(self, item: Answer, call_id: str, taken: dict[str, Answer], param: str) -> Answer:
        call = self.open_calls.get(call_id)
        if call is None or call.kind != CALL_KIND_OF_OUTPUT[item.kind]:
            raise InvalidAppend(param, f"no pending call '{call_id}' takes a {item.kind}.")
        if call_id in self.answered or call_id in taken:
            raise InvalidAppend(param, f"call '{call_id}' was answered before.")
        named = _named(item, call)
        assert isinstance(named, CallOutputItem | ApprovalResponseItem)  # the kind stays
        return named

    def _skip_echo(self, items: list[InputItem]) -> int:
        """How many leading items are the server's own, sent back (Codex to 0.99, without ids)."""
        left = list(self.emitted)
        for index, item in enumerate(items):
            match = next((emitted for emitted in left if is_echo(emitted, item)), None)
            if match is None:
                return index
            left.remove(match)
        return len(items)


def is_echo(emitted: OutputItem, item: InputItem) -> bool:
    """Whether ``item`` is ``emitted`` sent back: same id, same ``call_id``, or same kind and content."""
    if isinstance(item, FunctionCallItem):
        return getattr(emitted, "call_id", None) == item.call_id
    if isinstance(item, MessageItem) and isinstance(emitted, OutputMessage):
        return item.role == "assistant" and (item.id == emitted.id or _texts(item) == _emitted_texts(emitted))
    if isinstance(item, McpCallItem) and isinstance(emitted, McpCall):
        called = qualified_name(emitted.server_label, emitted.name), emitted.arguments
        return item.id == emitted.id or (item.name, item.arguments) == called
    if isinstance(item, McpToolsItem) and isinstance(emitted, McpListTools):
        return item.server_label == emitted.server_label
    if isinstance(item, SearchItem) and isinstance(emitted, WebSearchCall):
        return item.encrypted_content == emitted.encrypted_content
    if isinstance(item, ApprovalRequestItem):
        return item.id == emitted.id
    if isinstance(item, ReasoningItem) and isinstance(emitted, Reasoning):
        return item.id == emitted.id or item.summary == [part.text for part in emitted.summary]
    return False


def _texts(item: MessageItem) -> list[str]:
    return [part.text if part.text is not None else part.refusal or "" for part in item.parts]


def _emitted_texts(item: OutputMessage) -> list[str]:
    return [part.text if isinstance(part, OutputText) else part.refusal for part in item.content]


def name_outputs(items: list[InputItem]) -> list[InputItem]:
    """Fill in the tool names of outputs from the calls among the same items, for a past that is rendered again."""
    calls: dict[str, OpenCall] = {}
    result: list[InputItem] = []
    for item in items:
        if (call := _opened_by(item)) is not None:
            calls[call.call_id] = call
        elif isinstance(item, CallOutputItem | ApprovalResponseItem) and item.call_id in calls:
            item = _named(item, calls[item.call_id])
        result.append(item)
    return result
