"""What post-inference hears of a turn that was refused, and how a client's text may appear in it."""

from __future__ import annotations

import re

from respserver.errors import ApiError
from respserver.protocol.commands import Create
from respserver.schema.request import CreateRequest
from respserver.turn.postinference import TurnRecord
from respserver.turn.services import Port

LEFT = "cancelled"
"""Status, for the log and the ledger, of a turn whose client went away before its end."""
MAX_NAME = 64
MAX_NAMES = 8
"""How much is told of names that are the client's text: of fields that the API does not have, of models unread."""
_OWN_ID = re.compile(r"resp_[0-9A-Za-z_]{1,59}")


def refusal_record(request: CreateRequest, port: Port, error: ApiError | None) -> TurnRecord:
    """A turn that was refused before ``response.created``, or left by its client, for post-inference."""
    record = _record(request.params.previous_response_id, request.params.model, port, error)
    record.items_in = len(request.items)
    record.unknown = loggable_names(request.unknown)
    return record


def rejected_record(create: Create, port: Port, error: ApiError) -> TurnRecord:
    """A create that did not become a turn, for post-inference; it may not have been understood at all."""
    if create.request is None:
        return _record(create.previous_response_id, create.model[:MAX_NAME], port, error)
    return refusal_record(create.request, port, error)


def _record(previous_response_id: str | None, model: str | None, port: Port, error: ApiError | None) -> TurnRecord:
    return TurnRecord(
        response_id="",
        previous_response_id=loggable(previous_response_id),
        connection_id=port.connection_id,
        transport=port.transport,
        tenant=port.tenant,
        model=model or "",
        status=LEFT if error is None else "refused",
        error_code=error.code if error else None,
        param=error.param[:MAX_NAME] if error and error.param else "",
    )


def loggable(response_id: str | None) -> str | None:
    """An id for the log, if it looks like one of ours: people paste other things there, keys among them."""
    return response_id if response_id is None or _OWN_ID.fullmatch(response_id) else "[not one of ours]"


def loggable_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """The first few names of fields, each cut to a bearable length."""
    return tuple(name[:MAX_NAME] for name in names[:MAX_NAMES])
