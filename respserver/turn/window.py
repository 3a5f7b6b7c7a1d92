"""What the engine sees of a turn's context: all of it, or, with ``truncation:auto``, what fits the route's window.

A cut view is this sampling run's alone. The chain's own buffer stays whole, and what is sampled joins it behind its
last id, so that chained, stored and resent histories are cut alike, and the next turn cuts anew. A whole context that
has outgrown its window never fits again: its own run is closed, and the view's is closed behind its run.
"""

from __future__ import annotations

from array import array

from respserver.engines.base import Sequence
from respserver.errors import ContextLengthExceeded
from respserver.protocol.chain import Context
from respserver.schema.request import CreateRequest
from respserver.tokens.buffer import TokenBuffer
from respserver.tokens.frames import newest
from respserver.turn.rendering import render_head
from respserver.turn.routing import Route
from respserver.turn.runs import run_of
from respserver.turn.services import Services
from respserver.turn.stopwatch import Stopwatch
from respserver.turn.tokencache import head_key

OUTPUT_SHARE = 4
"""A cut leaves room for ``max_output_tokens``, and for one part in so many of the window at most; for just that if the
request names no limit."""


class Window:
    """One turn's view of its context."""

    def __init__(
        self,
        context: Context,
        request: CreateRequest,
        route: Route,
        tenant: str,
        services: Services,
        watch: Stopwatch,
    ) -> None:
        self.shown = context
        """What the engine's run is on: the chain's own context, or the cut view of it."""
        self._request = request
        self._route = route
        self._tenant = tenant
        self._services = services
        self._watch = watch
        self._view: Context | None = None
        self._view_start = 0

    @property
    def sequence(self) -> Sequence:
        """The engine's run."""
        return run_of(self.shown)

    @property
    def room(self) -> int | None:
        """Tokens that the window still has room for; None if it has no limit."""
        size = self._route.context_window
        return max(0, size - self.shown.head_tokens - len(self.shown.buffer)) if size else None

    async def show(self, context: Context) -> tuple[int, int]:
        """Give the engine what it has not had. Returns how many tokens it sees now, and how many of them it still had.

        Raises ``ContextLengthExceeded`` if what must be seen does not fit, and ``ModelFault``.
        """
        self.release()
        self._watch.begin("extend")
        key = head_key(
            f"{self._route.engine.name}/{context.fingerprint}", self._request.params.instructions, self._request.tools
        )
        head: array[int] | None = None
        if context.sequence is None or context.head_key != key:
            self._services.post.runs.close_soon(context)
            context.buffer.rewind()
            head = await self._render_head()
            context.head_key, context.head_tokens = key, len(head)
        self.shown = self._fitting(context)
        reused = 0 if self.shown.sequence is None else self.shown.head_tokens + self.shown.buffer.seen
        if self.shown.sequence is None:
            await self._open_run(self.shown, await self._render_head() if head is None else head)
        fresh = self.shown.buffer.unseen()
        self._services.metrics.tokens_extended += len(fresh)
        await self.sequence.extend(fresh)
        return self.shown.head_tokens + len(self.shown.buffer), reused

    def settle(self, context: Context) -> None:
        """A run is over: what was sampled on a cut view joins the chain's own buffer."""
        if self._view is not None:
            context.buffer.extend(self._view.buffer.since(self._view_start))
            self.release()

    def release(self) -> None:
        """Close the run of a cut view, if there is one."""
        if self._view is not None:
            self._services.post.runs.close_soon(self._view)
            self._view = None

    def _fitting(self, context: Context) -> Context:
        """The context if it fits, or a cut view of it. Raises ``ContextLengthExceeded``."""
        size, is_cut = self._route.context_window, self._request.params.truncation == "auto"
        whole = context.head_tokens + len(context.buffer)
        if not size or whole <= size - (self._output_room(size) if is_cut else 0):
            return context
        if not is_cut:
            raise ContextLengthExceeded
        room = size - self._output_room(size) - context.head_tokens
        has_tools = bool(context.added_tools or context.listed)
        ids = newest(context.buffer.since(0), self._route.template, room, has_tools=has_tools)
        if context.head_tokens + len(ids) > size:
            raise ContextLengthExceeded
        if len(ids) == len(context.buffer):
            return context  # nothing may be dropped, and it fits with less room for the output
        self._services.post.runs.close_soon(context)
        context.buffer.rewind()
        view = Context(buffer=TokenBuffer(), fingerprint=context.fingerprint, head_tokens=context.head_tokens)
        view.buffer.extend(ids)
        self._view, self._view_start = view, len(ids)
        return view

    def _output_room(self, size: int) -> int:
        share, limit = size // OUTPUT_SHARE, self._request.params.max_output_tokens
        return share if limit is None else min(share, limit)

    async def _render_head(self) -> array[int]:
        self._watch.begin("render")
        head = await render_head(
            self._route.template, self._tenant, self._request.params.instructions, self._request.tools, self._services
        )
        self._watch.begin("extend")
        return head

    async def _open_run(self, shown: Context, head: array[int]) -> None:
        sequence = await self._route.engine.open()
        shown.sequence = sequence
        self._services.metrics.sequences_opened += 1
        await sequence.extend(head)
