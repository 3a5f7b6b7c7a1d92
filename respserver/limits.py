"""Bounds and deadlines: the part of the settings that keeps a server standing. ``config.py`` says how they are set."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

MIB = 1 << 20

Seconds = Annotated[float, Meta(gt=0, lt=1e9)]
"""Some thirty years at most: no deadline is infinite."""
Count = Annotated[int, Meta(ge=1)]
Many = Annotated[int, Meta(ge=0)]
"""0 is no limit."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds and deadlines. Each is counted in the unit its name ends with, or in pieces."""

    message_bytes: Annotated[
        int, Meta(ge=1024, description="Largest WebSocket message and largest HTTP body after decompression, in bytes.")
    ] = 16 * MIB
    """The real service closes with 1009 somewhere near 16 MiB (protocol.md section 1.3)."""
    media_bytes: Annotated[int, Meta(ge=1, description="Largest image or file inside a request, in bytes.")] = 10 * MIB
    """Base64 takes a third more, so that one of this size fits into the largest message."""
    head_bytes: Annotated[int, Meta(ge=1024, description="Largest request head, in bytes.")] = 64 << 10
    handshake_seconds: Annotated[
        Seconds, Meta(description="How long a new connection may take to send its first request head.")
    ] = 15.0
    connections: Annotated[
        Many, Meta(description="How many connections may be open, HTTP and WebSocket together; 0 is no limit.")
    ] = 900
    """With our own files and the refused ones below the 1,024 that many systems let a process open."""
    active_turns: Annotated[
        Many, Meta(description="How many turns may run at once, on all connections; 0 is no limit.")
    ] = 256
    """As many sequences as inference servers commonly run at once."""
    waiting_turns: Annotated[
        int, Meta(ge=0, description="How many turns may wait until one that runs has ended; 0 lets none wait.")
    ] = 1024
    suspended_rollouts: Annotated[
        Many, Meta(description="How many rollouts may wait for tool outputs (prototype mode); 0 is no limit.")
    ] = 1024
    connection_suspended_rollouts: Annotated[
        Many,
        Meta(description="How many rollouts of one connection may wait for tool outputs; 0 is no limit."),
    ] = 16
    """As many as a connection has turns that run at once."""
    connection_lanes: Annotated[
        int, Meta(ge=0, description="How many lanes one connection may name (stream_id); 0 lets it name none.")
    ] = 32
    """As documented, and so is the next (protocol.md section 1.7)."""
    pending_steers: Annotated[Count, Meta(description="How many response.steer events may wait on one lane.")] = 32
    """Other servers' bound (protocol.md section 2.3); the API does not publish one."""
    connection_active_turns: Annotated[
        Count, Meta(description="How many turns of one connection may run at once, on all its lanes.")
    ] = 16
    requests_per_minute: Annotated[
        Many, Meta(description="How many turns a key's tenant may ask for in a minute; 0 is no limit.")
    ] = 0
    tokens_per_minute: Annotated[
        Many, Meta(description="How many tokens, input and output, a key's tenant may use in a minute; 0 is no limit.")
    ] = 0
    """Both off: a server for tests answers as often as it is asked. They are for playing the API's limits."""
    queued_creates: Annotated[
        Count, Meta(description="How many response.create events may wait on one connection.")
    ] = 64
    """Another gateway's bound (protocol.md section 1.7); the API does not publish one."""
    queued_bytes: Annotated[
        int,
        Meta(
            ge=1024, description="Bytes of all response.create events that one connection may have running or waiting."
        ),
    ] = 64 * MIB
    outbox_bytes: Annotated[
        int, Meta(ge=4096, description="Bytes that may wait for a slow reader before its turn waits too.")
    ] = MIB
    write_seconds: Annotated[
        Seconds,
        Meta(description="How long a peer may take nothing before it is given up."),
    ] = 30.0
    ping_seconds: Annotated[float, Meta(ge=0, lt=1e9, description="Interval of WebSocket pings; 0 sends none.")] = 20.0
    pong_seconds: Annotated[
        Seconds, Meta(description="How long an unanswered ping is waited for before the peer counts as gone.")
    ] = 20.0
    connection_seconds: Annotated[Seconds, Meta(description="Greatest age of a WebSocket connection.")] = 3600.0
    """60 minutes, as documented (protocol.md section 1.5)."""
    tool_seconds: Annotated[
        Seconds, Meta(description="How long a suspended rollout waits for response.append (prototype mode).")
    ] = 600.0
    hosted_seconds: Annotated[Seconds, Meta(description="How long a tool that the server runs itself may take.")] = 60.0
    hosted_calls: Annotated[
        Count, Meta(description="How many calls of such tools one response may make; max_tool_calls may ask for fewer.")
    ] = 128
    """A model that never stops calling must come to an end somewhere."""
    mcp_list_seconds: Annotated[
        Seconds, Meta(description="How long connecting to an MCP server and listing its tools may take.")
    ] = 10.0
    grace_seconds: Annotated[
        float,
        Meta(ge=0, lt=1e9, description="How long running turns may go on at shutdown and the age limit; 0 ends them."),
    ] = 10.0
    end_seconds: Annotated[
        Seconds,
        Meta(description="Deadline for saving a turn and writing its terminal event."),
    ] = 5.0
    inline_tokenize_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes of text that the event loop tokenises itself; more goes to a worker thread, with 0 all.",
        ),
    ] = 2048
    """About 1 ms of work; a thread costs 0.25 ms of waiting (design.md section 6)."""
    store_responses: Annotated[Count, Meta(description="How many stored responses the memory store keeps.")] = 10_000
    store_bytes: Annotated[
        int, Meta(ge=1, description="How many bytes of stored responses the memory store keeps.")
    ] = 256 * MIB
    store_seconds: Annotated[
        Seconds,
        Meta(description="How long an unused chain of stored responses is kept."),
    ] = 30 * 86400.0
    """30 days, as documented (protocol.md section 5.4)."""
    post_queue: Annotated[
        Count, Meta(description="How many finished turns may wait for their log line and bookkeeping.")
    ] = 1024
    ledger_records: Annotated[
        Count, Meta(description="How many finished turns are kept in memory, for programs that embed the server.")
    ] = 1_000
    """For tests that look at them; more would only burden the garbage collector."""
    token_cache_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes of token ids that are kept for clients that send everything again; 0 keeps none.",
        ),
    ] = 64 * MIB
    """Some 16 million tokens."""
    kept_contexts: Annotated[
        int,
        Meta(
            ge=0,
            description="Contexts of stored responses that are kept, with their engine runs, for the next turn over"
            " HTTP or on another socket; 0 keeps none.",
        ),
    ] = 64
    """A run of a model in the same process can hold hundreds of MB; the embedded one needs little."""
    kept_context_bytes: Annotated[
        int, Meta(ge=0, description="Bytes of kept contexts, engine runs not counted; 0 keeps none.")
    ] = 64 * MIB
    ledger_waiting: Annotated[
        Count, Meta(description="How many finished turns are kept while the ledger's file cannot be written.")
    ] = 16_384
    """About 1 KB each: 16 MB, or four hours at a turn a second."""
