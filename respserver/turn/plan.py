"""Admitting a turn: route, parent, pairing. Until ``take_context`` the parent's buffer is only looked at, so a refusal
here leaves nothing behind (design.md section 2)."""

from __future__ import annotations

import trio

from respserver.engines.base import Sequence
from respserver.errors import InvalidField, InvalidRequest
from respserver.protocol.chain import Context, pair
from respserver.protocol.commands import StartTurn
from respserver.protocol.lane import Lane
from respserver.schema.items import AdditionalToolsItem, InputItem
from respserver.schema.request import CreateRequest
from respserver.schema.tools import ToolDef, parse_tools
from respserver.tokens.buffer import TokenBuffer
from respserver.turn.hydrate import hydrate, rerender
from respserver.turn.routing import Route
from respserver.turn.services import Port, Services


class Plan:
    """What an admitted turn works with."""

    def __init__(
        self,
        route: Route,
        context: Context,
        items: list[InputItem],
        added_tools: dict[str, ToolDef],
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
            await rerender(context, self.route.template, self._services)
        context.open_calls = {}
        context.added_tools.update(self.offered_later)
        return context

    def hand_over(self) -> Context:
        """The lane owns the context now."""
        self._owned = False
        return self.context

    async def release(self) -> None:
        """Free the engine's run of a context that nobody goes on from."""
        if self._owned:
            await close_run(self.context, self._services.config.limits.end_seconds)


async def make_plan(start: StartTurn, port: Port, services: Services) -> Plan:
    """Admit a turn. Raises ``ApiError``: the turn is refused."""
    request = start.request
    assert request.params.model is not None  # read_create has made sure
    route = port.kept_route.resolve(request.params.model)
    if start.parent is not None:
        context = start.parent.context
    elif start.hydrate is not None:
        context = await hydrate(start.hydrate, port.tenant, services)
    else:
        context = Context(buffer=TokenBuffer(), fingerprint=route.template.fingerprint)
    items = pair(context, request.items)
    added = _added_tools(request.items)
    _check_tool_choice(request, context.added_tools | added)
    for name in request.unknown:
        services.metrics.count_unknown(name)
    return Plan(route, context, items, added, services, from_lane=start.parent is not None)


async def close_run(context: Context, seconds: float) -> None:
    """Close a context's engine run, also while cancelled, within a deadline."""
    sequence: Sequence | None = context.sequence  # type: ignore[assignment]  # opaque to protocol/, an engine's here
    if sequence is None:
        return
    context.sequence = None
    with trio.CancelScope(shield=True) as scope:
        scope.deadline = trio.current_time() + seconds
        await sequence.aclose()


def _added_tools(items: list[InputItem]) -> dict[str, ToolDef]:
    added: dict[str, ToolDef] = {}
    for index, item in enumerate(items):
        if isinstance(item, AdditionalToolsItem):
            added.update(parse_tools(bytes(item.tools), f"input[{index}].tools").by_name)
    return added


def _check_tool_choice(request: CreateRequest, added: dict[str, ToolDef]) -> None:
    choice = request.tool_choice
    offered = {tool.name for tools in (request.tools.by_name, added) for tool in tools.values()}
    for name in choice.names:
        if name not in offered:
            raise InvalidField("tool_choice", f"tool '{name}' is not among the tools on offer.")
    if choice.mode == "required" and not offered:
        raise InvalidRequest(
            "'tool_choice' may only be 'required' when tools are on offer.", param="tool_choice", code="invalid_value"
        )
