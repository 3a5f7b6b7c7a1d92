"""Routing: from a model's name to the engine, template and limits that serve it; kept per connection once resolved.

The table may be replaced while turns run: a turn goes on with the route that it began with, the next one asks anew.
Engines are never replaced. They live as long as the server, since an idle connection's run may be on any of them.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import msgspec

from respserver.engines.base import Engine
from respserver.errors import ModelNotFound
from respserver.metrics import Metrics
from respserver.tokens.render import Template


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model's turns go."""

    pattern: str
    engine: Engine
    template: Template
    context_window: int = 0
    """Tokens that fit, input and output together; 0 is no limit."""
    steering: bool = True
    """Whether its responses can be steered."""


class Router:
    """A table of name patterns (shell style); the first match wins."""

    def __init__(self, routes: list[Route], metrics: Metrics) -> None:
        self.routes = routes
        """The table. It is replaced as a whole, never changed: which list it is tells whether an answer still holds."""
        self.engines = _engines_of(routes)
        """Every engine that a table has led to, the first one first."""
        self.metrics = metrics

    def replace(self, routes: list[Route]) -> None:
        """Another table from now on, in one step."""
        self.engines = _engines_of(routes, self.engines)
        self.routes = routes

    def resolve(self, model: str) -> Route:
        """The route of a model. Raises ``ModelNotFound`` if no pattern matches."""
        self.metrics.routes_resolved += 1
        for route in self.routes:
            if fnmatch.fnmatchcase(model, route.pattern):
                return route
        raise ModelNotFound(model, served=tuple(route.pattern for route in self.routes))


class KeptRoute:
    """A connection's last route: asked again only when the model's name changes, or the table was replaced."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._table = router.routes
        self._model = ""
        self._route: Route | None = None

    def resolve(self, model: str) -> Route:
        """Like ``Router.resolve``, from memory if the name is the last one and the table the same."""
        table = self._router.routes
        if self._route is not None and model == self._model and table is self._table:
            self._router.metrics.route_hits += 1
            return self._route
        self._route = self._router.resolve(model)
        self._model, self._table = model, table
        return self._route


def _engines_of(routes: list[Route], known: Sequence[Engine] = ()) -> list[Engine]:
    engines = list(known)
    for route in routes:
        if not any(route.engine is engine for engine in engines):
            engines.append(route.engine)
    return engines
