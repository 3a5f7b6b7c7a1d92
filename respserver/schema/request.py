"""What clients send: ``response.create`` and POST bodies (protocol.md section 2.1), ``response.append`` (design.md
section 7).

``CreateParams`` types the small fields; the two that can be large, ``input`` and ``tools``, never pass through it:
``protocol/validate.py`` takes them as raw JSON, so that they are decoded once, or not at all when nothing changed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw

from respserver.schema.items import InputItem
from respserver.schema.response import ReasoningConfig
from respserver.schema.tools import NO_TOOLS, ToolChoice, ToolSet

ShortText = Annotated[str, Meta(max_length=64)]
MAX_COUNT = (1 << 31) - 1
"""Greatest number a limit may have: beyond any context window, and an ordinary integer in every client's language."""
MAX_METADATA_PAIRS = 16
MAX_METADATA_VALUE = 512
VERDICT_KEY = "safety_verdict"
"""Where a terminal Response's metadata tells of a flag."""
TIMINGS_KEY = "respserver_timings"
"""Where a terminal Response's metadata tells of stage times."""
OWN_METADATA = (VERDICT_KEY, TIMINGS_KEY)
"""Ours to say: a client that sends metadata back as it came may have them in it, and they are left out unread."""
ABSENT = Raw(b"")
"""A raw field that is absent or null; it is falsy. (msgspec takes ``Raw | None`` for None alone.)"""


class TextParam(msgspec.Struct, kw_only=True):
    """The ``text`` field of a request."""

    format: Raw = ABSENT
    verbosity: Literal["low", "medium", "high"] | None = None

    def __post_init__(self) -> None:
        if bytes(self.format) == b"null":
            self.format = ABSENT


FormatName = Annotated[str, Meta(min_length=1, max_length=64, pattern="^[a-zA-Z0-9_-]+$")]


class TextFormat(msgspec.Struct, kw_only=True, frozen=True):
    """``text.format`` (protocol.md section 6.7)."""

    type: Literal["text", "json_object", "json_schema"]
    name: FormatName | None = None
    schema: dict[str, Any] | None = None  # Any: a JSON schema, the engine's to read
    strict: bool | None = None
    description: str | None = None


PLAIN_TEXT = TextFormat(type="text")


class StreamOptions(msgspec.Struct, kw_only=True):
    """The ``stream_options`` field of a request."""

    include_obfuscation: bool | None = None


class PromptCacheOptions(msgspec.Struct, kw_only=True):
    """The ``prompt_cache_options`` field of a request."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m", "12h"] | None = None
    comparison_response_id: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    prewarm: bool | None = None


Included = Literal[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
]
"""protocol.md section 6.8."""


class CreateParams(msgspec.Struct, kw_only=True):
    """Every field of ``response.create`` that is not large. None, or ``ABSENT``, is what an absent or null field means:
    whoever decodes this leaves out the null fields."""

    type: str | None = None
    model: Annotated[str, Meta(min_length=1, max_length=256)] | None = None
    instructions: str | None = None
    previous_response_id: Annotated[str, Meta(max_length=256)] | None = None
    conversation: Raw = ABSENT
    store: bool | None = None
    generate: bool | None = None
    stream_id: Raw = ABSENT
    stream: bool | None = None
    background: bool | None = None
    stream_options: StreamOptions | None = None
    tool_choice: Raw = ABSENT
    parallel_tool_calls: bool | None = None
    max_tool_calls: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None
    max_output_tokens: Annotated[int, Meta(ge=16, le=MAX_COUNT)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    text: TextParam | None = None
    reasoning: ReasoningConfig | None = None
    include: list[Included] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    context_management: Raw = ABSENT
    metadata: dict[ShortText, Annotated[str, Meta(max_length=MAX_METADATA_VALUE)]] | None = None
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None = None
    prompt: Raw = ABSENT
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    safety_identifier: Annotated[str, Meta(max_length=128)] | None = None
    user: str | None = None
    background_options: Raw = ABSENT
    moderation: Raw = ABSENT
    image: Raw = ABSENT
    access_programs: Raw = ABSENT
    multi_agent: Raw = ABSENT
    client_metadata: Raw = ABSENT


class CreateRequest(msgspec.Struct, kw_only=True):
    """A validated create, ready to become a turn."""

    params: CreateParams
    items: list[InputItem]
    tools: ToolSet = NO_TOOLS
    tool_choice: ToolChoice = ToolChoice()
    text_format: TextFormat = PLAIN_TEXT
    unknown: tuple[str, ...] = ()
    """Names of fields that the API does not have; counted and logged by name."""

    warm_up: bool = False
    """Prepare state without sampling (``generate:false``, protocol.md section 2.2)."""
    stored: bool = True
    """Whether the response goes to the store."""
    compares_with: str | None = None
    """The response that the request wants its reuse of the prompt to be compared with."""
    top_logprobs: int | None = None
    """How many of the most likely tokens are wanted at each place; None if no log probabilities are. Either field asks
    for them (protocol.md section 6.8)."""

    def __post_init__(self) -> None:
        """Say once what several fields come to; a turn asks for it many times."""
        params = self.params
        options = params.prompt_cache_options
        self.warm_up = params.generate is False or bool(options and options.prewarm)
        self.stored = params.store is not False
        self.compares_with = options.comparison_response_id if options else None
        wants_logprobs = params.include is not None and "message.output_text.logprobs" in params.include
        self.top_logprobs = params.top_logprobs or (0 if wants_logprobs else None)


class AppendRequest(msgspec.Struct, kw_only=True):
    """A decoded ``response.append``; whether it fits the pause is the lane's to say."""

    items: list[InputItem]
    response_id: str | None = None
