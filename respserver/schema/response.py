"""The Response object, usage and the small objects beside it (protocol.md sections 6.1 and 6.2).

Every key is always present: nullable ones as null, never left out.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType

from respserver.schema.items import OutputItem

ResponseStatus = Literal["in_progress", "completed", "failed", "incomplete", "cancelled", "queued"]


class CacheWriteDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What is newly kept, by how long the request wants it kept at least."""

    ttl_30m_tokens: int = 0
    ttl_12h_tokens: int = 0


class InputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """How many input tokens were reused, and how many were newly kept for reuse."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_tokens_details: CacheWriteDetails | UnsetType = UNSET
    """Present if the request has ``prompt_cache_options``."""


class OutputTokensDetails(msgspec.Struct, frozen=True, kw_only=True):
    """How many output tokens were reasoning."""

    reasoning_tokens: int = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Token counts of one response; ``input_tokens`` counts the whole rendered context, reused parts included."""

    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = InputTokensDetails()
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    total_tokens: int = 0


class ResponseError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True, kw_only=True):
    """Why a response is incomplete."""

    reason: str


class ReasoningConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The request's ``reasoning``, echoed."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | UnsetType | None = UNSET
    mode: str | UnsetType | None = UNSET
    generate_summary: Literal["auto", "concise", "detailed"] | UnsetType | None = UNSET
    """The older name of ``summary``."""

    @property
    def shows_summary(self) -> bool:
        """Whether the request asked to see what the model thought."""
        return bool(self.summary or self.generate_summary)


class TextConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The request's ``text``, echoed."""

    format: Raw = Raw(b'{"type":"text"}')
    verbosity: str = "medium"


class CacheOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The request's ``prompt_cache_options``, echoed."""

    mode: Literal["implicit", "explicit"] = "implicit"
    ttl: Literal["30m", "12h"] = "30m"
    comparison_response_id: str | None = None


class CacheDiagnostics(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the compared response's prompt this one could reuse, and why not more."""

    type: Literal["cache_hit", "cache_miss", "comparison_response_not_found", "unavailable"]
    reason: str | UnsetType = UNSET
    cache_missed_tokens: int | UnsetType = UNSET
    comparison_reusable_tokens: int | UnsetType = UNSET


class Response(msgspec.Struct, kw_only=True):
    """A response as created, in_progress and terminal events, JSON answers and GET show it."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: ResponseStatus = "in_progress"
    background: bool = False
    completed_at: int | None = None
    conversation: None = None
    error: ResponseError | None = None
    frequency_penalty: float = 0.0
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    model: str
    moderation: None = None
    output: list[OutputItem] = msgspec.field(default_factory=list)
    parallel_tool_calls: bool = True
    presence_penalty: float = 0.0
    previous_response_id: str | None = None
    prompt: None = None
    prompt_cache_diagnostics: CacheDiagnostics | UnsetType = UNSET
    """Present in the terminal Response if the request asks for a comparison."""
    prompt_cache_key: str | None = None
    prompt_cache_options: CacheOptions | None = None
    prompt_cache_retention: str | None = None
    reasoning: ReasoningConfig = ReasoningConfig()
    safety_identifier: str | None = None
    service_tier: str = "auto"
    store: bool = True
    temperature: float = 1.0
    text: TextConfig = TextConfig()
    tool_choice: Raw = Raw(b'"auto"')
    tools: Raw = Raw(b"[]")
    top_logprobs: int = 0
    top_p: float = 1.0
    truncation: str = "disabled"
    usage: Usage | None = None
    user: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)  # Any: values are strings, checked on the way in
