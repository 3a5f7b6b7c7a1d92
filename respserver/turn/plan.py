"""Admitting a turn: route, parent, pairing. Until ``take_context`` the parent's buffer is only looked at, so a refusal
here leaves nothing behind (design.md section 2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import trio

from respserver.errors import InvalidField, PreviousResponseNotFound, UnsupportedParameter
from respserver.protocol.chain import Context, left_open, pair
from respserver.protocol.choose import choose_tools
from respserver.protocol.commands import StartTurn
from respserver.protocol.lane import Lane
from respserver.schema.items import ApprovalResponseItem, InputItem, tools_of
from respserver.schema.tools import SEARCH_NAME, WEB_SEARCH, HostedDef, Other, ToolChoice, ToolDef, parse_tools
from respserver.state import StoredItem
from respserver.tokens.buffer import TokenBuffer
from respserver.turn.hydrate import hydrate, past_items, rerender
from respserver.turn.record import MAX_NAME
from respserver.turn.replay import read_stored, take_in
from respserver.turn.routing import Route
from respserver.turn.runs import fork_run
from respserver.turn.safety import Verdict, WholeContext, decode_verdict
from respserver.turn.services import Port, Services
from respserver.turn.stopwatch import Stopwatch
from respserver.turn.toolboxes import MAX_SERVED, Toolboxes

NOTHING_SERVED: frozenset[Other] = frozenset()
"""What the server runs of most requests' tools."""


class Plan:
    """What an admitted turn works with."""

    def __init__(
        self,
        route: Route,
        context: Context,
        items: list[InputItem],
        added_tools: dict[str, ToolDef],
        offered: dict[str, ToolDef],
        tool_choice: ToolChoice,
        verdict: Verdict,
        start: StartTurn,
        tenant: str,
        services: Services,
    ) -> None:
        self.route = route
        self.context = context
        self.items = items
        """The new items, paired, in the order in which they are rendered."""
        self.offered_later = added_tools
        """What items of this turn add to the offer."""
        self.offered = offered
        """All tools that can be called, by qualified name."""
        self.tool_choice = tool_choice
        """What the request's leaves of the offer, as qualified names; none are all."""
        self.verdict = verdict
        """What the classifiers that speak first have said."""
        self._tenant = tenant
        self._services = services
        self.steers = start.steers
        """The steering input that is part of ``items``."""
        self._forked_from = start.parent.context if start.parent is not None and start.is_fork else None
        self._owned = not _is_lanes_own(start)

    async def take_context(self, lane: Lane) -> Context:
        """Own the parent's context from here on; its calls are answered by the new items."""
        if not self._owned:
            lane.take()
            self.context = self.context.move()
            self._owned = True
        context = self.context
        if context.fingerprint != self.route.template.fingerprint:
            await rerender(context, self.route.template, self._tenant, self._services)
        elif self._forked_from is not None:
            await fork_run(self._forked_from, context, self._services.post.runs)
        context.open_calls = left_open(context, self.items)
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
        if not _is_lanes_own(start):  # the lane keeps that
            services.post.runs.close_soon(context)
        raise


async def _parent_context(start: StartTurn, route: Route, tenant: str, services: Services) -> Context:
    """What the turn goes on from: the lane's, a copy of another lane's, a kept one, one from the store, or an empty
    one."""
    if start.parent is not None:
        # A copy is made before anything is waited for: from here on the other lane may go its own way.
        return start.parent.context.fork() if start.is_fork else start.parent.context
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
    if request.top_logprobs is not None and not route.engine.gives_logprobs:
        asked = "top_logprobs" if request.params.top_logprobs else "include"
        raise UnsupportedParameter(asked, f"is not supported by the engine '{route.engine.name}': log probabilities.")
    served = _check_hosted(request.tools.hosted, port.toolboxes) if request.tools.hosted else NOTHING_SERVED
    given = await take_in(request.items, context, port.tenant, services)
    steered = [item for steer in start.steers for item in steer.items]  # user messages, which pair with nothing
    items = [*steered, *pair(context, given)]
    if request.warm_up:
        _check_nothing_approved(given)
    added = _added_tools(given)
    offered = request.tools.by_name
    if added or context.added_tools:
        offered = offered | context.added_tools | added
    if served:
        _check_names(served, offered)
    chosen = choose_tools(request.tool_choice, request.tools, offered, served)
    watch.begin("screen")
    verdict = decode_verdict(context.verdict)
    if services.screening.is_on:
        verdict = await screen_first(services, port.tenant, context, [], items, verdict)
    watch.begin("bind")
    for name in request.unknown:
        services.metrics.count_unknown(name[:MAX_NAME])
    return Plan(route, context, items, added, offered, chosen, verdict, start, port.tenant, services)


def _check_hosted(definitions: tuple[HostedDef, ...], toolboxes: Toolboxes) -> frozenset[Other]:
    """The tools that the server itself will run. Raises an ``InvalidRequest`` for a definition that may not be
    served."""
    served = [one for one in definitions if toolboxes.serves(one)]
    if len(served) > MAX_SERVED:
        raise InvalidField(
            served[MAX_SERVED].place, f"expected at most {MAX_SERVED} tools that the server runs itself."
        )
    for one in served:
        toolboxes.check(one)
    return frozenset(one.other for one in served)


def _check_names(served: Collection[Other], offered: Mapping[str, ToolDef]) -> None:
    """Raises an ``InvalidRequest`` if the model could not say whether it calls the client's tool or the server's."""
    labels = {other.server_label for other in served if other.type == "mcp"}
    for name, tool in offered.items():
        if tool.namespace in labels:
            raise InvalidField("tools", f"'{tool.namespace}' is a namespace and the label of an MCP server.")
        if name == SEARCH_NAME and any(other.type in WEB_SEARCH for other in served):
            raise InvalidField("tools", f"'{name}' is a tool of yours and one that the server runs itself.")


def _check_nothing_approved(items: list[InputItem]) -> None:
    """A warm-up runs nothing, and the word that lets a call run must not be lost in it."""
    for index, item in enumerate(items):
        if isinstance(item, ApprovalResponseItem) and item.approve:
            raise InvalidField(f"input[{index}]", "a warm-up runs no calls; send the approval with the next create.")


def _is_lanes_own(start: StartTurn) -> bool:
    """Whether the parent's context is still the lane's, until the turn takes it."""
    return start.parent is not None and not start.is_fork


async def screen_first(
    services: Services,
    tenant: str,
    context: Context,
    since: list[StoredItem],
    items: list[InputItem],
    verdict: Verdict,
) -> Verdict:
    """Ask the classifiers that must speak before anything is done with ``items``; ``since`` are the turn's own items
    that ``context`` does not know yet. Raises ``ContentPolicyViolation``."""
    everything = whole_context(services, tenant, context, since, items)
    verdict = await services.screening.before(items, everything, verdict)
    verdict.raise_if_blocked()
    return verdict


def whole_context(
    services: Services, tenant: str, context: Context, since: list[StoredItem], items: list[InputItem]
) -> WholeContext:
    """How a classifier that reads everything gets it: the past, the turn so far, the new items."""
    earlier = list(since)

    async def load() -> list[InputItem]:
        await trio.lowlevel.checkpoint()
        return [*read_stored([*past_items(context), *earlier], tenant, services.sealer), *items]

    return load


def _added_tools(items: list[InputItem]) -> dict[str, ToolDef]:
    added: dict[str, ToolDef] = {}
    for index, item in enumerate(items):
        if (tools := tools_of(item)) is not None:
            added.update(parse_tools(tools, f"input[{index}].tools").by_name)
    return added
