"""Items and heads to token ids: kept ones, else inline while short, in a worker thread above (design.md section 6)."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from functools import partial

import trio

from respserver.schema.items import InputItem, OutputItem, Reasoning
from respserver.schema.tools import ToolSet
from respserver.tokens.render import Pieces, Template
from respserver.tokens.special import Special
from respserver.turn.services import Services
from respserver.turn.tokencache import head_key, item_key, scope_of, whole_items


async def render_items(
    template: Template, tenant: str, items: Sequence[InputItem | OutputItem], services: Services
) -> array[int]:
    """The ids of items, in order. Items that this tenant had rendered or sampled before are not tokenised again."""
    return joined(await render_pieces(template, tenant, [template.item(item) for item in items], services))


async def render_pieces(template: Template, tenant: str, pieces: list[Pieces], services: Services) -> list[array[int]]:
    """The ids of each of these renderings; they may be shared, and nobody may change them."""
    services.metrics.items_rendered += len(pieces)
    cache = services.token_cache
    if not cache.is_on:
        return await _tokenise(template, pieces, services)
    scope = scope_of(tenant, template.fingerprint)
    keys = [item_key(scope, each) for each in pieces]
    found = [cache.get(key) for key in keys]
    missing = [index for index, ids in enumerate(found) if ids is None]
    made = await _tokenise(template, [pieces[index] for index in missing], services) if missing else []
    for index, ids in zip(missing, made, strict=True):
        found[index] = ids
        cache.put(keys[index], ids)
    return [ids for ids in found if ids is not None]


def remember_sampled(
    template: Template,
    tenant: str,
    items: list[OutputItem],
    ids: array[int],
    services: Services,
    searches: Mapping[str, Pieces],
) -> None:
    """Keep the ids that the model sampled for its items, so that a client that sends them back gets just those; with
    the outputs behind them of calls that the server ran. ``searches`` are the pieces of search items by id."""
    if not services.token_cache.is_on:
        return
    frames = whole_items(ids, Special.START)
    # Reasoning comes back sealed, whole, however little of it was shown; None stands for what its ids will say.
    pieces = [None if isinstance(item, Reasoning) else searches.get(item.id) or template.item(item) for item in items]
    counts = [1 if each is None else each.count(Special.START) for each in pieces]
    if len(frames) != sum(counts):
        return  # a model that broke its own form: its items are rendered like anybody's
    scope = scope_of(tenant, template.fingerprint)
    start = 0
    for each, count in zip(pieces, counts, strict=True):
        item_ids = joined(frames[start : start + count])
        start += count
        shown = template.sampled_reasoning(item_ids) if each is None else each
        services.token_cache.put(item_key(scope, shown), item_ids, replaces=True)


async def render_head(
    template: Template, tenant: str, instructions: str | None, tools: ToolSet, services: Services
) -> array[int]:
    """The ids of a head: kept ones if this tenant had the same head rendered before."""
    cache = services.token_cache
    key = head_key(scope_of(tenant, template.fingerprint), instructions, tools)
    ids = cache.get(key) if cache.is_on else None
    if ids is None:
        services.metrics.heads_rendered += 1
        (ids,) = await _tokenise(template, [template.head(instructions, tools.told)], services)
        cache.put(key, ids)
    return ids


async def _tokenise(template: Template, items: list[Pieces], services: Services) -> list[array[int]]:
    size = sum(template.text_bytes(pieces) for pieces in items)
    services.metrics.bytes_tokenised += size
    if size <= services.config.limits.inline_tokenize_bytes:
        return _tokenise_each(template, items)
    tokenise = partial(_tokenise_each, template, items, beside_others=True)
    return await trio.to_thread.run_sync(tokenise, limiter=services.tokenise_limiter)


def _tokenise_each(template: Template, items: list[Pieces], *, beside_others: bool = False) -> list[array[int]]:
    return [array("I", ids) for ids in template.tokenise_each(items, beside_others=beside_others)]


def joined(parts: Sequence[array[int]]) -> array[int]:
    """Ids one after the other; one part alone is itself, not a copy."""
    if len(parts) == 1:
        return parts[0]
    ids = array("I")
    for part in parts:
        ids += part
    return ids
