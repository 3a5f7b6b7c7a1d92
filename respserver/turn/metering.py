"""A turn's usage: what its sampling runs were shown and what they said, each run by itself (design.md section 7)."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from respserver.schema.request import CreateRequest
from respserver.schema.response import CacheWriteDetails, InputTokensDetails, OutputTokensDetails, Usage


class Meter:
    """Adds up. ``keeps`` tells whether what the engine reads may serve a later turn."""

    def __init__(self, request: CreateRequest, *, keeps: bool) -> None:
        self.usage = Usage()
        self._options = request.params.prompt_cache_options
        self._keeps = keeps

    def count_input(self, total: int, reused: int, *, kept: bool) -> None:
        """Add one sampling run's input: what the engine sees, with what of it it still had. A cut view is not
        ``kept``."""
        usage, details = self.usage, self.usage.input_tokens_details
        written = details.cache_write_tokens + (total - reused if kept and self._keeps else 0)
        self.usage = msgspec.structs.replace(
            usage,
            input_tokens=usage.input_tokens + total,
            input_tokens_details=InputTokensDetails(
                cached_tokens=details.cached_tokens + reused,
                cache_write_tokens=written,
                cache_write_tokens_details=self._by_lifetime(written),
            ),
            total_tokens=usage.total_tokens + total,
        )

    def count_output(self, tokens: int, reasoning_tokens: int) -> None:
        """Add what a run has said; ``reasoning_tokens`` are those of the whole turn so far."""
        usage = self.usage
        output_tokens = usage.output_tokens + tokens
        self.usage = Usage(
            input_tokens=usage.input_tokens,
            input_tokens_details=usage.input_tokens_details,
            output_tokens=output_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=reasoning_tokens),
            total_tokens=usage.input_tokens + output_tokens,
        )

    def _by_lifetime(self, written: int) -> CacheWriteDetails | UnsetType:
        if self._options is None:
            return UNSET
        is_long = self._options.ttl == "12h"
        return CacheWriteDetails(ttl_12h_tokens=written if is_long else 0, ttl_30m_tokens=0 if is_long else written)
