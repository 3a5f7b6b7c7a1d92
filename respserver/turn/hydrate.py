"""Hydrating: a parent that is not this connection's own is loaded from the store (protocol.md section 5.2).

Look-up goes from the lane to the store. There is no stage for writes under way: a turn is saved before its terminal
event is written, so that an id that a client can know is already there.
"""

from __future__ import annotations

from respserver.errors import PreviousResponseNotFound
from respserver.protocol.chain import Context, Past, name_outputs
from respserver.schema.tools import ToolDef, parse_tools
from respserver.state import ResponseState, StoredItem
from respserver.tokens.buffer import TokenBuffer
from respserver.tokens.render import Template
from respserver.turn.rendering import render_items
from respserver.turn.replay import read_stored
from respserver.turn.services import Services


async def hydrate(response_id: str, tenant: str, services: Services) -> Context:
    """The context that ``response_id`` left, from the store. Raises ``PreviousResponseNotFound``."""
    states = await services.store.load_chain(response_id, tenant)
    if not states:
        raise PreviousResponseNotFound(response_id)
    services.metrics.chains_hydrated += 1
    past: Past | None = None
    for state in states:
        past = Past.after(past, state.items)
    return Context(
        buffer=TokenBuffer.frombytes(*(state.body_ids for state in states)),
        fingerprint=_common_fingerprint(states),
        past=past,
        open_calls={call.call_id: call for call in states[-1].open_calls},
        item_ids={item_id for state in states for item_id in state.item_ids},
        call_ids={call_id for state in states for call_id in state.call_ids},
        added_tools=_added_tools(states),
        verdict=states[-1].verdict,
        listed={label for state in states for label in state.listed},
        sources=[source for state in states for source in state.sources],
    )


async def rerender(context: Context, template: Template, tenant: str, services: Services) -> None:
    """Render a context's whole past again, for a route with another tokenizer or template."""
    items = name_outputs(read_stored(past_items(context), tenant, services.sealer))
    context.buffer = TokenBuffer()
    context.buffer.extend(await render_items(template, tenant, items, services))
    context.fingerprint = template.fingerprint
    context.head_key = b""


def past_items(context: Context) -> list[StoredItem]:
    """All items of a context, oldest first. Walks the history: not for the ordinary turn."""
    turns: list[list[StoredItem]] = []
    past = context.past
    while past is not None:
        turns.append(past.items)
        past = past.before
    return [item for items in reversed(turns) for item in items]


def _common_fingerprint(states: list[ResponseState]) -> str:
    """What made all the ids, or nothing that matches: a chain whose turns went to several tokenizers."""
    fingerprints = {state.fingerprint for state in states}
    return fingerprints.pop() if len(fingerprints) == 1 else ""


def _added_tools(states: list[ResponseState]) -> dict[str, ToolDef]:
    return {
        name: tool for state in states for raw in state.added_tools for name, tool in parse_tools(raw).by_name.items()
    }
