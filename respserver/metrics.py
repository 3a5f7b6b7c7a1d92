"""Counters of what the server did. Tests read them to prove that work is not done twice."""

from __future__ import annotations

import msgspec

MAX_UNKNOWN_FIELDS = 256
"""Names come from clients: without a bound they could fill the memory."""


class Metrics(msgspec.Struct):
    """Plain counts since the start of the process."""

    connections: int = 0
    """WebSocket connections opened."""
    connections_refused: int = 0
    """Connections, of HTTP too, that came while the greatest number of them was open."""
    turns: int = 0
    """Turns admitted: ``response.created`` was sent."""
    refused: int = 0
    """Turns refused before ``response.created``, those that were never tried among them."""
    rate_limited: int = 0
    """Those among them that came too often, or after too many tokens."""
    turns_waited: int = 0
    """Turns that found all slots of the process taken and waited for one."""
    steers: int = 0
    """Submissions of steering input that became part of a response."""
    failed: int = 0
    """Turns that ended in ``response.failed``."""
    pauses: int = 0
    """Suspensions at a tool call (prototype mode)."""
    hosted_calls: int = 0
    """Calls that the server has run itself."""
    items_rendered: int = 0
    """Items turned into token ids."""
    bytes_tokenised: int = 0
    """Bytes of text that went through the tokenizer."""
    heads_rendered: int = 0
    """Heads (instructions and tools) turned into token ids."""
    token_cache_hits: int = 0
    """Items and heads whose token ids were still here."""
    token_cache_misses: int = 0
    """Items and heads that were looked for in vain; none while the cache is off."""
    sequences_opened: int = 0
    """Engine runs opened."""
    tokens_extended: int = 0
    """Token ids given to engines."""
    tokens_sampled: int = 0
    """Token ids that engines made and turns took."""
    chains_hydrated: int = 0
    """Parents loaded from the store."""
    contexts_reused: int = 0
    """Parents that were stored and still here as they ended: nothing was loaded."""
    routes_resolved: int = 0
    """Model names looked up in the routing table."""
    route_hits: int = 0
    """Turns whose connection still knew the route: same name as its last turn, same table."""
    unknown_fields: dict[str, int] = msgspec.field(default_factory=dict)
    """Request fields that the API does not have, by name."""

    def count_unknown(self, name: str) -> None:
        """Count a request field that the API does not have; the number of names is bounded."""
        if name in self.unknown_fields or len(self.unknown_fields) < MAX_UNKNOWN_FIELDS:
            self.unknown_fields[name] = self.unknown_fields.get(name, 0) + 1
