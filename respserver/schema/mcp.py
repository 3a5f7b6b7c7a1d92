"""The definition of an ``mcp`` tool: an MCP server whose tools this server calls by itself (protocol.md section 6.5).

What is said of approval and of allowed tools is decided here; hosts and connections are ``tools/``'s.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec import Meta, Raw

from respserver.errors import InvalidField, MissingParameter, UnsupportedParameter
from respserver.schema.codec import decode

LABEL = r"^[A-Za-z][A-Za-z0-9_-]{0,63}$"
"""It stands before the dot of a qualified name."""
_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[!-~](?:[\t -~]*[!-~])?|")
_TOKEN = re.compile(r"(?:[Bb]earer )?[!-~]+")
_OURS = frozenset(
    {"host", "connection", "content-length", "content-type", "transfer-encoding", "accept", "accept-encoding"}
    | {"te", "trailer", "upgrade", "expect", "keep-alive", "proxy-authorization", "proxy-connection", "last-event-id"}
)
"""Headers of the transport, which a definition cannot set; nor any that begins with ``mcp-``."""


class ToolFilter(msgspec.Struct, frozen=True):
    """Some of a server's tools. A filter that says nothing is as if it were not there."""

    tool_names: tuple[str, ...] | None = None
    read_only: bool | None = None

    @property
    def says_nothing(self) -> bool:
        """Whether neither field is given."""
        return self.tool_names is None and self.read_only is None

    def fits(self, name: str, *, is_read_only: bool) -> bool:
        """Whether it means this tool: what it says must all be so."""
        if self.says_nothing:
            return False
        return (self.tool_names is None or name in self.tool_names) and self.read_only in (None, is_read_only)


class _Approval(msgspec.Struct, frozen=True):
    always: ToolFilter = ToolFilter()
    never: ToolFilter = ToolFilter()


class McpDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says of an MCP server."""

    type: Literal["mcp"]
    server_label: Annotated[str, Meta(pattern=LABEL)]
    server_url: str | None = None
    connector_id: str | None = None
    tunnel_id: str | None = None
    server_description: str | None = None
    headers: dict[str, str] | None = None
    authorization: str | None = None
    allowed_tools: tuple[str, ...] | ToolFilter | None = None
    require_approval: Literal["always", "never"] | _Approval | None = None
    defer_loading: bool | None = None

    def __repr__(self) -> str:
        return f"McpDefinition({self.server_label!r})"  # the rest holds what is nobody's business

    @property
    def url(self) -> SplitResult:
        """Where the server is."""
        return urlsplit(self.server_url or "")

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers that go with every request, the authorization among them."""
        headers = {name.lower(): value for name, value in (self.headers or {}).items()}
        if self.authorization:
            token = self.authorization.partition(" ")[2] or self.authorization
            headers["authorization"] = f"Bearer {token}"
        return headers

    def offers(self, name: str, *, is_read_only: bool) -> bool:
        """Whether the model is told of this tool."""
        allowed = self.allowed_tools
        if isinstance(allowed, ToolFilter):
            return allowed.says_nothing or allowed.fits(name, is_read_only=is_read_only)
        return allowed is None or name in allowed

    def needs_approval(self, name: str, *, is_read_only: bool) -> bool:
        """Whether the client must agree to each call: yes, unless it has said ``never`` of this tool and not both."""
        rule = self.require_approval
        if not isinstance(rule, _Approval):
            return rule != "never"
        never = rule.never.fits(name, is_read_only=is_read_only)
        return not never or rule.always.fits(name, is_read_only=is_read_only)


_definition = msgspec.json.Decoder(McpDefinition)


def parse_mcp(raw: bytes | Raw, param: str) -> McpDefinition:
    """Read a definition that stands at ``param``. Raises an ``InvalidRequest`` naming the field."""
    definition = decode(_definition, raw, param)
    for field in ("connector_id", "tunnel_id"):
        if getattr(definition, field) is not None:
            raise UnsupportedParameter(f"{param}.{field}", "is not supported by this server; give 'server_url'.")
    _check_url(definition.server_url, f"{param}.server_url")
    _check_headers(definition, param)
    return definition


def _check_url(url: str | None, param: str) -> None:
    if not url:
        raise MissingParameter(param)
    try:
        parts = urlsplit(url)
        names_a_host = bool(_URL.fullmatch(url) and parts.hostname and parts.port != 0)
    except ValueError:  # the port, or the brackets of an address
        names_a_host = False
    if not names_a_host:
        raise InvalidField(param, "expected http:// or https://, a host, and no impossible port.")
    if "@" in parts.netloc:
        raise InvalidField(param, "a user or password does not belong into it; use 'authorization' or 'headers'.")


def _check_headers(definition: McpDefinition, param: str) -> None:
    for name, value in (definition.headers or {}).items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidField(f"{param}.headers", "one of them cannot be sent as an HTTP header.")
        if name.lower() in _OURS or name.lower().startswith("mcp-"):
            raise InvalidField(f"{param}.headers", f"'{name.lower()}' is the transport's own.")
        if name.lower() == "authorization" and definition.authorization:
            raise InvalidField(f"{param}.headers", "'authorization' is given twice.")
    if definition.authorization and not _TOKEN.fullmatch(definition.authorization):
        raise InvalidField(f"{param}.authorization", "it cannot be sent as a bearer token.")
