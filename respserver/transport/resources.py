"""What HTTP serves beside turns: stored responses, the model list, health."""

from __future__ import annotations

import fnmatch
from typing import Any

from respserver.errors import ModelNotFound, ResponseNotFound
from respserver.turn.services import Services

JsonObject = dict[str, Any]  # Any: whatever JSON holds; Quart encodes it

MODELS_CREATED = 1_767_225_600
"""``created`` of a model entry, in seconds since 1970; the embedded model has no date of its own."""
GLOB = frozenset("*?[")


async def get_response(services: Services, response_id: str, tenant: str) -> bytes:
    """The stored Response as JSON. Raises ``ResponseNotFound``."""
    state = await services.store.load(response_id, tenant)
    if state is None:
        raise ResponseNotFound(response_id)
    return state.response


async def delete_response(services: Services, response_id: str, tenant: str) -> JsonObject:
    """Hide a stored response. Raises ``ResponseNotFound``."""
    if not await services.store.delete(response_id, tenant):
        raise ResponseNotFound(response_id)
    services.kept.drop((tenant, response_id))
    return {"id": response_id, "object": "response", "deleted": True}


def list_models(services: Services) -> JsonObject:
    """The names on offer, in a shape for the SDKs (``data``) and for Codex (``models``, which it may find empty)."""
    return {"object": "list", "data": [_model(name) for name in model_names(services)], "models": []}


def get_model(services: Services, name: str) -> JsonObject:
    """One model; with patterns in the routing table any name that they match. Raises ``ModelNotFound``."""
    try:
        services.router.resolve(name)
    except ModelNotFound as error:
        raise ModelNotFound(name, status=404, served=error.served) from None
    return _model(name)


def model_names(services: Services) -> list[str]:
    """Names that can be listed: routes without wildcards, and the engines' own if a route leads there."""
    routes = services.router.routes
    names = [route.pattern for route in routes if not GLOB & set(route.pattern)]
    own = [route.engine.name for route in routes]
    served = [name for name in own if any(fnmatch.fnmatchcase(name, route.pattern) for route in routes)]
    return list(dict.fromkeys([*names, *served]))


def _model(name: str) -> JsonObject:
    return {"id": name, "object": "model", "created": MODELS_CREATED, "owned_by": "respserver"}
