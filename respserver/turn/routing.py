"""Routing: from a model's name to the engine, template and limits that serve it; kept per connection once resolved."""

from __future__ import annotations

import fnmatch

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


class Router:
    """A table of name patterns (shell style); the first match wins."""

    def __init__(self, routes: list[Route], metrics: Metrics) -> None:
        self.routes = routes
        self._metrics = metrics

    def resolve(self, model: str) -> Route:
        """The route of a model. Raises ``ModelNotFound`` if no pattern matches."""
        self._metrics.routes_resolved += 1
        for route in self.routes:
            if fnmatch.fnmatchcase(model, route.pattern):
                return route
        raise ModelNotFound(model)


class KeptRoute:
    """A connection's last route: asked again only when the model's name changes."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._model = ""
        self._route: Route | None = None

    def resolve(self, model: str) -> Route:
        """Like ``Router.resolve``, from memory if the name is the last one."""
        if self._route is None or model != self._model:
            self._route = self._router.resolve(model)
            self._model = model
        return self._route
