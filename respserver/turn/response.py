"""The Response object as a turn begins: the request's fields echoed, defaults filled in (protocol.md section 6.1)."""

from __future__ import annotations

from msgspec import Raw

from respserver.ledger.base import Timings
from respserver.schema.codec import encode, split_object
from respserver.schema.request import (
    MAX_METADATA_PAIRS,
    MAX_METADATA_VALUE,
    TIMINGS_KEY,
    VERDICT_KEY,
    CreateParams,
    CreateRequest,
)
from respserver.schema.response import CacheOptions, ReasoningConfig, Response, TextConfig

_CUT = " ..."
"""Ends a verdict that was too long to be told whole; no category looks like it."""
_TEXT = Raw(b'{"type":"text"}')
_SCHEMA_DEFAULTS = {"description": Raw(b"null"), "strict": Raw(b"false")}


def new_response(request: CreateRequest, response_id: str, created_at: int) -> Response:
    """The snapshot that ``response.created`` shows."""
    params = request.params
    return Response(
        id=response_id,
        created_at=created_at,
        frequency_penalty=_or(params.frequency_penalty, 0.0),
        instructions=params.instructions,
        max_output_tokens=params.max_output_tokens,
        max_tool_calls=params.max_tool_calls,
        model=params.model or "",
        parallel_tool_calls=params.parallel_tool_calls is not False,
        presence_penalty=_or(params.presence_penalty, 0.0),
        previous_response_id=params.previous_response_id,
        prompt_cache_key=params.prompt_cache_key,
        prompt_cache_options=_cache_options(params),
        prompt_cache_retention=params.prompt_cache_retention,
        reasoning=params.reasoning or ReasoningConfig(),
        safety_identifier=params.safety_identifier,
        service_tier=_service_tier(params),
        store=request.stored,
        temperature=_or(params.temperature, 1.0),
        text=_text(request),
        tool_choice=request.tool_choice.echo,
        tools=request.tools.echo,
        top_logprobs=params.top_logprobs or 0,
        top_p=_or(params.top_p, 1.0),
        truncation=params.truncation or "disabled",
        user=params.user,
        metadata=dict(params.metadata or {}),
    )


def pads(request: CreateRequest, default: bool) -> bool:
    """Whether delta events are padded: the request's word, else the server's option (design.md section 8)."""
    options = request.params.stream_options
    return default if options is None or options.include_obfuscation is None else options.include_obfuscation


def with_verdict(metadata: dict[str, str], verdict: str) -> dict[str, str]:
    """Metadata with what screening said, if anything. It has its place beside a client's sixteen pairs, since a
    warning must not depend on them; categories that a value has no room for are left out."""
    if not verdict:
        return metadata
    if len(verdict) > MAX_METADATA_VALUE:
        verdict = verdict[: verdict.rindex(" ", 0, MAX_METADATA_VALUE + 1 - len(_CUT))] + _CUT
    return {**metadata, VERDICT_KEY: verdict}


def with_timings(metadata: dict[str, str], timings: Timings) -> dict[str, str]:
    """Metadata with stage times as a compact JSON object, if the other pairs leave room."""
    if len(metadata) >= MAX_METADATA_PAIRS:
        return metadata
    return {**metadata, TIMINGS_KEY: encode(timings).decode()}


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _service_tier(params: CreateParams) -> str:
    """``fast`` is an older name of ``priority``."""
    tier = params.service_tier or "auto"
    return "priority" if tier == "fast" else tier


def _text(request: CreateRequest) -> TextConfig:
    text = request.params.text
    if text is None:
        return TextConfig()
    return TextConfig(format=_text_format(request, bytes(text.format)), verbosity=text.verbosity or "medium")


def _text_format(request: CreateRequest, raw: bytes) -> Raw:
    """The format as it was sent, without the frame that it was cut from; a schema's with what it leaves out."""
    if not raw:
        return _TEXT
    if request.text_format.type != "json_schema":
        return Raw(raw)
    return Raw(encode({**_SCHEMA_DEFAULTS, **split_object.decode(raw)}))


def _cache_options(params: CreateParams) -> CacheOptions | None:
    options = params.prompt_cache_options
    if options is None:
        return None
    return CacheOptions(
        mode=options.mode or "implicit",
        ttl=options.ttl or "30m",
        comparison_response_id=options.comparison_response_id,
    )
