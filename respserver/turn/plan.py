"""Admitting a turn: route, parent, pairing. Until ``take_context`` the parent's buffer is only looked at, so a refusal
here leaves nothing behind (design.md section 2)."""

from __future__ import annotations

import trio

from respserver.errors import InvalidField, InvalidRequest, PreviousResponseNotFound
from respserver.protocol.chain import Context, pair
from respserver.protocol.commands import StartTurn
from respserver.protocol.lane import Lane
from respserver.schema.items import AdditionalToolsItem, InputItem
from respserver.schema.request import CreateRequest
from respserver.schema.tools import ToolDef, parse_tools
from respserver.state import StoredItem
from respserver.tokens.buffer import TokenBuffer
from respserver.turn.hydrate import hydrate, past_items, read_items, rerender
from respserver.turn.record import MAX_NAME
from respserver.turn.routing import Route
from respserver.turn.safety import Screening, Verdict, WholeContext, decode_verdict
from respserver.turn.services import Port, Services
from respserver.turn.stopwatch import Stopwatch


class Plan:
    """What an admitted turn works with."""

    def __init__(
        self,
        route: Route,
        context: Context,
        items: list[InputItem],
        added_tools: dict[str, ToolDef],
        chosen_tools: tuple[str, ...],
        verdict: Verdict,
        tenant: str,
        services: Services,
        *,
        from_lane: bool,
    ) -> None:
        self.route = route
        self.context = context
        self.items = items
        """The new items, paired, in the order in which they are rendered."""
        self.offered_later = added_tools
        """What ``additional_tools`` items of this turn add to the offer."""
        self.chosen_tools = chosen_tools
        """Qualified names that ``tool_choice`` narrows the offer to; empty is all."""
        self.verdict = verdict
        """What the classifiers that speak first have said."""
        self._tenant = tenant
        self._services = services
        self._from_lane = from_lane
        self._owned = not from_lane

    async def take_context(self, lane: Lane) -> Context:
        """Own the parent's context from here on; its calls are answered by the new items."""
        context = self.context
        if self._from_lane:
            lane.take()
        self._owned = True
        if context.fingerprint != self.route.template.fingerprint:
            await rerender(context, self.route.template, self._tenant, self._services)
        context.open_calls = {}
        context.added_tools.update(self.offered_later)
        return context

    def hand_over(self) -> Context:
        """The lane owns the context now."""
        self._owned = False
        return self.context

    def release(self) -> None:
        """Free the engine's run of a context that nobody goes on from."""
        if self._owned:
            self._services.post.runs.close_soon(self.context)


async def make_plan(start: StartTurn, port: Port, services: Services, watch: Stopwatch) -> Plan:
    """Admit a turn. Raises ``ApiError``: the turn is refused."""
    request = start.request
    assert request.params.model is not None  # read_create has made sure
    route = port.kept_route.resolve(request.params.model)
    context = await _parent_context(start, route, port.tenant, services)
    try:
        return await _admit(start, port, route, context, services, watch)
    except BaseException:
        if start.parent is None:  # the lane keeps its own
            services.post.runs.close_soon(context)
        raise


async def _parent_context(start: StartTurn, route: Route, tenant: str, services: Services) -> Context:
    """What the turn goes on from: the lane's, a kept one, one from the store, or an empty one."""
    if start.parent is not None:
        return start.parent.context
    if start.hydrate is None:
        return Context(buffer=TokenBuffer(), fingerprint=route.template.fingerprint)
    key = tenant, start.hydrate
    if key in services.kept:
        if not await services.store.touch(start.hydrate, tenant):
            services.kept.drop(key)
            raise PreviousResponseNotFound(start.hydrate)
        context = services.kept.take(key)  # None if another one was quicker
        if context is not None:
            services.metrics.contexts_reused += 1
            return context
    return await hydrate(start.hydrate, tenant, services)


async def _admit(
    start: StartTurn, port: Port, route: Route, context: Context, services: Services, watch: Stopwatch
) -> Plan:
    request = start.request
    items = pair(context, request.items)
    added = _added_tools(request.items)
    chosen = _chosen_tools(request, context.added_tools | added)
    watch.begin("screen")
    verdict = await screen_first(services.screening, context, [], items, decode_verdict(context.verdict))
    watch.begin("bind")
    for name in request.unknown:
        services.metrics.count_unknown(name[:MAX_NAME])
    return Plan(
        route, context, items, added, chosen, verdict, port.tenant, services, from_lane=start.parent is not None
    )


async def screen_first(
    screening: Screening, context: Context, since: list[StoredItem], items: list[InputItem], verdict: Verdict
) -> Verdict:
    """Ask the classifiers that must speak before anything is done with ``items``; ``since`` are the turn's own items
    that ``context`` does not know yet. Raises ``ContentPolicyViolation``."""
    verdict = await screening.before(items, whole_context(context, since, items), verdict)
    verdict.raise_if_blocked()
    return verdict


def whole_context(context: Context, since: list[StoredItem], items: list[InputItem]) -> WholeContext:
    """How a classifier that reads everything gets it: the past, the turn so far, the new items."""
    earlier = list(since)

    async def load() -> list[InputItem]:
        await trio.lowlevel.checkpoint()
        return [*read_items([*past_items(context), *earlier]), *items]

    return load


def _added_tools(items: list[InputItem]) -> dict[str, ToolDef]:
    added: dict[str, ToolDef] = {}
    for index, item in enumerate(items):
        if isinstance(item, AdditionalToolsItem):
            added.update(parse_tools(bytes(item.tools), f"input[{index}].tools").by_name)
    return added


def _chosen_tools(request: CreateRequest, added: dict[str, ToolDef]) -> tuple[str, ...]:
    """The qualified names that ``tool_choice`` narrows the offer to; a bare name stands for the tool of any namespace.

    Raises ``InvalidRequest`` for a name, or a kind, that is not on offer.
    """
    choice = request.tool_choice
    offered = request.tools.by_name | added
    if choice.mode == "required" and not offered:
        raise InvalidRequest(
            "'tool_choice' may only be 'required' when tools are on offer.", param="tool_choice", code="invalid_value"
        )
    if not choice.names:
        return ()
    known: dict[str, list[str]] = {}
    for qualified, tool in offered.items():
        if choice.kind in (None, tool.type):
            for name in {qualified, tool.name}:
                known.setdefault(name, []).append(qualified)
    for name in choice.names:
        if name not in known:
            raise InvalidField("tool_choice", f"tool '{name}' is not among the tools on offer.")
    return tuple(dict.fromkeys(qualified for name in choice.names for qualified in known[name]))
