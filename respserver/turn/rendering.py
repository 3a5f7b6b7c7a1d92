"""Items and heads to token ids: inline while short, in a worker thread above (design.md section 6)."""

from __future__ import annotations

from array import array

import trio

from respserver.schema.items import InputItem
from respserver.tokens.render import Pieces, Template
from respserver.turn.services import Services


async def render_items(template: Template, items: list[InputItem], services: Services) -> array[int]:
    """The ids of items, in order."""
    services.metrics.items_rendered += len(items)
    return await _tokenise(template, [piece for item in items for piece in template.item(item)], services)


async def render_head(
    template: Template, key: bytes, instructions: str | None, tools_raw: bytes, services: Services
) -> array[int]:
    """The ids of a head: kept ones if the same head was rendered before."""
    ids = services.heads.get(key)
    if ids is None:
        services.metrics.heads_rendered += 1
        ids = await _tokenise(template, template.head(instructions, tools_raw), services)
        services.heads.put(key, ids)
    return ids


async def _tokenise(template: Template, pieces: Pieces, services: Services) -> array[int]:
    size = template.text_bytes(pieces)
    services.metrics.bytes_tokenised += size
    if size <= services.config.limits.inline_tokenize_bytes:
        return array("I", template.tokenise(pieces))
    ids = await trio.to_thread.run_sync(template.tokenise, pieces, limiter=services.tokenise_limiter)
    return array("I", ids)
