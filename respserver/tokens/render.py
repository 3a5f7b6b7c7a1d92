"""Items to token ids: the template that frames a context.

Every item is framed by itself, so that a context is its items one after another and
``render(a) + render(b) == render(a + b)``:

    message          START role (SEP text | REFUSAL text)* END
    reasoning        START "assistant" (THINK text)* END
    function call    START "assistant" CALL name SEP arguments END
    custom call      START "assistant" CUSTOM name SEP input END
    function output  START "tool" CALL name (SEP text)* END
    custom output    START "tool" CUSTOM name (SEP text)* END
    added tools      START "tools" SEP json END
    hosted call      a function call, and START "hosted" CALL name SEP text END unless it was cut
    MCP tools        added tools: one namespace, called like the server
    approval         a function call; its output is a hosted one, or a tool's that says it was refused
    compaction       the items that it holds
    anything else    START "item" SEP json END

A role may say a phase, as in "assistant commentary" (``roles.py``). An image or a file is a text part with its kind in
brackets and as many PAD as it takes room, which no text can spell. The arguments ``{}`` are no text at all: models call
tools without arguments in either way, and the client is shown ``{}`` for both (F13).

The head in front of them is ``START "system" SEP instructions END`` and ``START "tools" SEP json END``, each left out
if there is nothing to say. What the server made and what a client replays of it render to the same ids. ``parse.py``
reads the same form back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, assert_never

from respserver.schema.codec import encode
from respserver.schema.items import (
    AdditionalToolsItem,
    ApprovalRequestItem,
    ApprovalResponseItem,
    CallOutputItem,
    CompactionItem,
    CustomToolCall,
    FunctionCall,
    FunctionCallItem,
    InputItem,
    InputPart,
    ItemReference,
    ListedTool,
    McpApprovalRequest,
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
    RefusalPart,
    SealedSearch,
    SearchItem,
    WebSearchCall,
)
from respserver.schema.tools import NO_TOOLS, qualified_name
from respserver.tokens.roles import HOSTED, PHASES, role_text
from respserver.tokens.special import Special
from respserver.tokens.tokenizer import Tokenizer

TEMPLATE_VERSION = 3
"""Counts up when the same item comes to other ids, so that ids of an older form are never mixed in."""

Pieces = list[int | str]
"""A rendering before it is tokenised: ids of special tokens, and texts."""
CallKind = Literal["function_call", "custom_tool_call"]
PartKind = Literal["text", "refusal"]
NO_ARGUMENTS = "{}"
REFUSED = "The user has refused this call."

_CALL_MARK = {
    "function_call": Special.CALL,
    "function_call_output": Special.CALL,
    "custom_tool_call": Special.CUSTOM,
    "custom_tool_call_output": Special.CUSTOM,
}
_PART_MARK = {"text": Special.SEP, "refusal": Special.REFUSAL}


class Template:
    """Renders heads and items with one tokenizer. ``fingerprint`` changes whenever the ids would."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.fingerprint = f"{tokenizer.fingerprint}.{TEMPLATE_VERSION}"

    @property
    def token_bytes(self) -> list[bytes]:
        """What each token says, for the parser."""
        return self.tokenizer.token_bytes

    def head(self, instructions: str | None, tools_raw: bytes) -> Pieces:
        """What stands before the items: the instructions, and the JSON array of tools as the model is told of them."""
        pieces: Pieces = []
        if instructions:
            pieces += _framed_text("system", instructions)
        if tools_raw != NO_TOOLS.raw:
            pieces += _framed_text("tools", _text(tools_raw))
        return pieces

    def item(self, item: InputItem | OutputItem) -> Pieces:
        """One item, from a client or from the server."""
        match item:
            case MessageItem(role=role, phase=phase, parts=parts):
                known = phase if phase in PHASES else None  # the client's text is none of the model's marks
                return _framed(role_text(role, known), [_input_part(part) for part in parts])
            case OutputMessage(role=role, phase=phase, content=content):
                return message_pieces(role_text(role, phase or None), [_output_part(part) for part in content])
            case FunctionCallItem(kind=kind, namespace=namespace, name=name, arguments=text):
                return call_pieces(kind, qualified_name(namespace, name), text)
            case FunctionCall(namespace=namespace, name=name, arguments=text):
                return call_pieces("function_call", qualified_name(namespace, name), text)
            case CustomToolCall(namespace=namespace, name=name, input=text):
                return call_pieces("custom_tool_call", qualified_name(namespace, name), text)
            case CallOutputItem(kind=output_kind, name=name, parts=parts):
                return _output_pieces(output_kind, name, parts)
            case ReasoningItem(thoughts=thoughts):
                return reasoning_pieces(thoughts)
            case Reasoning():
                return reasoning_pieces([part.text for part in item.content or item.summary])
            case CompactionItem(items=items):
                return [piece for inner in items for piece in self.item(inner)]
            case AdditionalToolsItem(tools=tools):
                return _framed_text("tools", _text(bytes(tools)))
            case McpCallItem(name=name, arguments=text, output=output, error=error, approval_request_id=approved):
                return hosted_pieces(None if approved else text, name, output if error is None else failed(error))
            case McpCall(server_label=label, name=name, output=output, error=mcp_error, approval_request_id=approved):
                said = output if mcp_error is None else failed("\n".join(part.text for part in mcp_error.content))
                return hosted_pieces(None if approved else item.arguments, qualified_name(label, name), said)
            case McpToolsItem(server_label=label, tools=listed) | McpListTools(server_label=label, tools=listed):
                return _listed_pieces(label, listed)
            case ApprovalRequestItem(name=name, arguments=text):
                return call_pieces("function_call", name, text)
            case McpApprovalRequest(server_label=label, name=name, arguments=text):
                return call_pieces("function_call", qualified_name(label, name), text)
            case ApprovalResponseItem(name=name, approve=approve, reason=reason):
                refused = InputPart(type="output_text", text=f"{REFUSED} {reason or ''}".rstrip())
                return [] if approve else _output_pieces("function_call_output", name, [refused])
            case SearchItem(sealed=sealed):
                return [] if sealed is None else search_pieces(sealed)
            case WebSearchCall():
                raise AssertionError("a search is rendered from what is sealed in it")
            case OpaqueItem(tools=tools) if tools is not None:
                return _framed_text("tools", _text(bytes(tools)))
            case OpaqueItem(raw=raw, shown=shown, pads=pads):
                return _framed("item", [_text_part(_text(shown or raw), pads)])
            case ItemReference():
                raise AssertionError("a reference is resolved before anything is rendered")
            case _:  # pragma: no cover - the type checker sees that every kind stands above
                assert_never(item)

    def sampled_reasoning(self, ids: Sequence[int]) -> Pieces:
        """The pieces of a reasoning item that the model sampled: an item as it is shown may say less."""
        starts = [at for at, token in enumerate(ids) if token == Special.THINK]
        ends = [*starts[1:], len(ids)]
        return reasoning_pieces([self.tokenizer.decode(ids[at:end]) for at, end in zip(starts, ends, strict=True)])

    def tokenise(self, pieces: Pieces) -> list[int]:
        """The ids of pieces."""
        return self.tokenise_each([pieces])[0]

    def tokenise_each(self, items: Sequence[Pieces], *, beside_others: bool = False) -> list[list[int]]:
        """The ids of several lists of pieces, each by itself; all texts go to the tokenizer together.

        Short ones take 0.1 to 0.5 ms a KB. ``beside_others`` is for long ones, in a thread: it takes 0.3 to 0.5 ms a KB
        and lets other threads run meanwhile.
        """
        texts = [piece for pieces in items for piece in pieces if isinstance(piece, str)]
        encode = self.tokenizer.encode_batch if beside_others else self.tokenizer.encode_short
        encoded = iter(encode(texts))
        results: list[list[int]] = []
        for pieces in items:
            ids: list[int] = []
            for piece in pieces:
                if isinstance(piece, str):
                    ids += next(encoded)
                else:
                    ids.append(piece)
            results.append(ids)
        return results

    def text_bytes(self, pieces: Pieces) -> int:
        """How many bytes of text ``tokenise`` would have to work on."""
        return sum([_size(piece) for piece in pieces if isinstance(piece, str)])


def message_pieces(role: str, parts: Iterable[tuple[PartKind, str]]) -> Pieces:
    """A message of content parts, each a kind and its text."""
    pieces: Pieces = [Special.START, role]
    for kind, text in parts:
        pieces += (_PART_MARK[kind], text)
    return [*pieces, Special.END]


def reasoning_pieces(texts: Sequence[str]) -> Pieces:
    """Reasoning in parts. Without any there is nothing to show the model: an item whose text was never told."""
    if not texts:
        return []
    pieces: Pieces = [Special.START, "assistant"]
    for text in texts:
        pieces += (Special.THINK, text)
    return [*pieces, Special.END]


def call_pieces(kind: CallKind, name: str, text: str) -> Pieces:
    """A tool call: the qualified name, and the arguments or the input."""
    pieces: Pieces = [Special.START, "assistant", _CALL_MARK[kind], name, Special.SEP]
    if kind != "function_call" or text != NO_ARGUMENTS:
        pieces.append(text)
    return [*pieces, Special.END]


def hosted_pieces(arguments: str | None, name: str, output: str | None) -> Pieces:
    """A call that the server ran itself, and what the model read of it. Without arguments the call itself stands
    elsewhere, as the one that was approved; without an output it was cut before it ran."""
    called = [] if arguments is None else call_pieces("function_call", name, arguments)
    return called if output is None else called + output_text(name, output)


def output_text(name: str, text: str) -> Pieces:
    """What the model reads of a call that the server ran itself."""
    return [Special.START, HOSTED, Special.CALL, name, Special.SEP, text, Special.END]


def search_pieces(search: SealedSearch) -> Pieces:
    """A search, from what is sealed in its item."""
    return hosted_pieces(search.arguments, search.name, search.output)


def failed(error: str) -> str:
    """What the model reads of a call that failed."""
    return f"Error: {error}"


def _listed_pieces(label: str, tools: Sequence[ListedTool]) -> Pieces:
    """The tools of an MCP server; nothing if it has none."""
    if not tools:
        return []
    listed = [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.input_schema}
        for tool in tools
    ]
    return _framed_text("tools", _text(encode([{"type": "namespace", "name": label, "tools": listed}])))


def _output_pieces(kind: str, name: str, parts: Iterable[InputPart]) -> Pieces:
    pieces: Pieces = [Special.START, "tool", _CALL_MARK[kind], name]
    for part in parts:
        pieces += _text_part(_words(part), part.pads)
    return [*pieces, Special.END]


def _framed(role: str, parts: Iterable[Pieces]) -> Pieces:
    return [Special.START, role, *(piece for part in parts for piece in part), Special.END]


def _framed_text(role: str, text: str) -> Pieces:
    return message_pieces(role, [("text", text)])


def _input_part(part: InputPart) -> Pieces:
    if part.type == "refusal":
        return [Special.REFUSAL, _words(part)]
    return _text_part(_words(part), part.pads)


def _text_part(text: str, pads: int) -> Pieces:
    return [Special.SEP, text, *[Special.PAD] * pads]


def _words(part: InputPart) -> str:
    """A part's text. Images, files and what else has none are only named, as in ``[input_image]``."""
    if part.type == "refusal":
        return part.refusal or ""
    return f"[{part.type}]" if part.text is None or part.pads else part.text


def _output_part(part: OutputText | RefusalPart) -> tuple[PartKind, str]:
    return ("refusal", part.refusal) if isinstance(part, RefusalPart) else ("text", part.text)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
