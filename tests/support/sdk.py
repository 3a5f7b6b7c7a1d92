"""The official SDK as oracle: its pydantic types must take everything that we send, by validation, not construction."""

from __future__ import annotations

import functools
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import ConfigDict, TypeAdapter

EVENT_FIELDS = {"type", "sequence_number"}
RESPONSE_FIELDS = {
    "id", "object", "created_at", "completed_at", "status", "incomplete_details", "model", "previous_response_id",
    "instructions", "output", "error", "tools", "tool_choice", "truncation", "parallel_tool_calls", "text", "top_p",
    "presence_penalty", "frequency_penalty", "top_logprobs", "temperature", "reasoning", "usage", "max_output_tokens",
    "max_tool_calls", "store", "background", "service_tier", "metadata", "safety_identifier", "prompt_cache_key",
}  # fmt: skip
"""What the strictest known parser and the written specification demand of every snapshot, null or not."""
ITEM_FIELDS = {
    "message": {"id", "role", "status", "content"},
    "function_call": {"id", "status", "arguments", "call_id", "name"},
    "custom_tool_call": {"id", "status", "input", "call_id", "name"},
    "reasoning": {"id", "summary"},
}
USAGE_FIELDS = {"input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details"}


@functools.cache
def _events() -> TypeAdapter[Any]:
    return TypeAdapter(ResponseStreamEvent, config=ConfigDict(arbitrary_types_allowed=True))


def check_event(event: dict[str, Any]) -> None:
    """Validate one event, ours alone (``response.done``) by its Response."""
    assert set(event) >= EVENT_FIELDS
    if event["type"] != "response.done":
        _events().validate_python(event)
    if "response" in event:
        check_response(event["response"])
    if "item" in event:
        check_item(event["item"])


def check_response(response: dict[str, Any]) -> None:
    """Validate one Response object and its items."""
    Response.model_validate(response)
    assert set(response) >= RESPONSE_FIELDS, RESPONSE_FIELDS - set(response)
    for item in response["output"]:
        check_item(item)
    usage = response["usage"]
    if usage is not None:
        assert set(usage) >= USAGE_FIELDS
        assert set(usage["input_tokens_details"]) >= {"cached_tokens", "cache_write_tokens"}
        assert set(usage["output_tokens_details"]) >= {"reasoning_tokens"}
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def check_item(item: dict[str, Any]) -> None:
    """The fields that clients read of each kind of item."""
    assert set(item) >= ITEM_FIELDS[item["type"]], item
    for part in item.get("content") or ():
        if part["type"] == "output_text":
            assert set(part) >= {"text", "annotations", "logprobs"}
