"""``tool_choice``: its forms read into one, and held against the tools that are on offer (protocol.md section 6.6).

Reading needs the field alone. Whether a tool is on offer is known only with the chain, to which earlier turns may have
added tools; so that comes later, when the turn is admitted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, get_args

import msgspec
from msgspec import Raw

from respserver.errors import InvalidField, InvalidRequest, MissingParameter, UnsupportedParameter
from respserver.schema.codec import InvalidChoice, decode, encode
from respserver.schema.tools import Mode, Other, ToolChoice, ToolDef, ToolSet

NAMED = ("function", "custom")
BY_TYPE = (
    *("file_search", "web_search", "web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"),
    *("computer", "computer_use", "computer_use_preview", "code_interpreter", "image_generation", "local_shell"),
    *("shell", "apply_patch", "tool_search", "programmatic_tool_calling"),
)
"""Tools of which a request has one at most: their type says which."""
_SAME_TOOL = {
    "web_search_2025_08_26": "web_search",
    "web_search_preview_2025_03_11": "web_search_preview",
    "computer_use": "computer",
    "computer_use_preview": "computer",
}


class _Tool(msgspec.Struct, omit_defaults=True):
    type: str
    name: str | None = None
    server_label: str | None = None


class _Choice(_Tool, omit_defaults=True):
    mode: Literal["auto", "required"] = "auto"
    tools: list[_Tool] | None = None


_BY_WORD: dict[str, ToolChoice] = {mode: ToolChoice(mode=mode, echo=Raw(encode(mode))) for mode in get_args(Mode)}
_word = msgspec.json.Decoder(str)
_choice = msgspec.json.Decoder(_Choice)


def read_tool_choice(raw: Raw) -> ToolChoice:
    """Read the field; absent is ``auto``. Raises an ``InvalidRequest`` that names what is wrong in it."""
    if not raw:
        return ToolChoice()
    text = bytes(raw)
    if text.startswith(b'"'):
        word = decode(_word, text, "tool_choice")
        if word not in _BY_WORD:
            raise InvalidChoice("tool_choice", word, tuple(_BY_WORD))
        return _BY_WORD[word]
    choice = decode(_choice, text, "tool_choice")
    if choice.type == "allowed_tools":
        return _allowed(choice)
    _check_tool(choice, "tool_choice", ("allowed_tools",))
    echo = Raw(encode(_Tool(choice.type, choice.name, choice.server_label)))
    if choice.type in NAMED:
        kind: Literal["function", "custom"] = "function" if choice.type == "function" else "custom"
        return ToolChoice(mode="required", names=(choice.name or "",), kind=kind, echo=echo)
    return ToolChoice(mode="required", others=(_other(choice),), echo=echo)


def choose_tools(
    choice: ToolChoice, tools: ToolSet, offered: Mapping[str, ToolDef], served: Collection[Other] = ()
) -> ToolChoice:
    """The choice with the qualified names that it leaves of ``offered``, in ``names``; none are all. A bare name stands
    for the tool of any namespace. Of ``served``, which the server runs itself, it keeps what it leaves in ``others``.

    Raises ``InvalidRequest`` for a tool that is not on offer, and where a call is demanded that nothing here makes.
    """
    if not choice.names and not choice.others:
        if choice.mode == "required" and not offered and not served:
            raise _nothing_to_call(choice, tools)
        return choice
    present = {_family(other) for other in tools.others}
    for other in choice.others:
        if _family(other) not in present:
            raise _not_found(other.server_label or other.type)
    families = {_family(other) for other in served}
    others = tuple(other for other in choice.others if _family(other) in families)
    names = _qualified(choice, offered)
    callable_tools = (*names, *others) if choice.names or choice.others else (*offered, *served)
    if choice.mode == "required" and not callable_tools:
        raise _nothing_to_call(choice, tools)
    if choice.others and not names and not others:
        return ToolChoice(mode="none")
    return ToolChoice(mode=choice.mode, names=names, others=others)


def _allowed(choice: _Choice) -> ToolChoice:
    """``allowed_tools``: at least one, since no names mean that nothing is narrowed."""
    if choice.tools is None:
        raise MissingParameter("tool_choice.tools")
    if not choice.tools:
        raise InvalidField("tool_choice.tools", "expected at least one tool.", "empty_array")
    for index, tool in enumerate(choice.tools):
        _check_tool(tool, f"tool_choice.tools[{index}]")
    return ToolChoice(
        mode=choice.mode,
        names=tuple(tool.name or "" for tool in choice.tools if tool.type in NAMED),
        others=tuple(_other(tool) for tool in choice.tools if tool.type not in NAMED),
        echo=Raw(encode({"type": choice.type, "mode": choice.mode, "tools": choice.tools})),
    )


def _check_tool(tool: _Tool, param: str, more_types: tuple[str, ...] = ()) -> None:
    if tool.type in NAMED:
        if not tool.name:
            raise MissingParameter(f"{param}.name")
    elif tool.type == "mcp":
        if not tool.server_label:
            raise MissingParameter(f"{param}.server_label")
    elif tool.type not in BY_TYPE:
        raise InvalidChoice(f"{param}.type", tool.type, (*NAMED, "mcp", *more_types, *BY_TYPE))


def _other(tool: _Tool) -> Other:
    return Other(tool.type, tool.server_label or "", tool.name or "") if tool.type == "mcp" else Other(tool.type)


def _family(other: Other) -> Other:
    """Versions of a tool are one tool; what an ``mcp`` tool is called matters, of others nothing but the type."""
    return Other("mcp", other.server_label) if other.type == "mcp" else Other(_SAME_TOOL.get(other.type, other.type))


def _qualified(choice: ToolChoice, offered: Mapping[str, ToolDef]) -> tuple[str, ...]:
    if not choice.names:
        return ()
    known: dict[str, list[str]] = {}
    for qualified, tool in offered.items():
        if choice.kind in (None, tool.type):
            for name in {qualified, tool.name}:
                known.setdefault(name, []).append(qualified)
    for name in choice.names:
        if name not in known:
            raise _not_found(name)
    return tuple(dict.fromkeys(qualified for name in choice.names for qualified in known[name]))


def _not_found(name: str) -> InvalidRequest:
    message = f"Tool choice '{name}' not found in 'tools' parameter."
    return InvalidRequest(message, param="tool_choice", code="invalid_value")


def _nothing_to_call(choice: ToolChoice, tools: ToolSet) -> InvalidRequest:
    """A demand that could only be met by silence."""
    left = choice.others or tuple(sorted(tools.others))
    if not left:
        message = "'tool_choice' may only be 'required' when tools are on offer."
        return InvalidRequest(message, param="tool_choice", code="invalid_value")
    named = ", ".join(f"'{other.server_label or other.type}'" for other in left)
    return UnsupportedParameter("tool_choice", f"demands a call of {named}, and this server calls functions only.")
