"""What goes wrong, as exceptions that know how they look on the wire.

This file imports nothing: errors that carry wire objects tie knots. Foreign errors are turned into these where they
enter. An error keeps facts in fields and makes its sentence from them; the texts are the ones that clients match
(protocol.md section 4.2).

    RespserverError
    ├── ConfigError                    a bad option, file or environment variable; the command exits with 2
    ├── ConnectionLost                 a peer that we had called is gone, or never answered
    └── ApiError                       anything a client is told, with the HTTP status it has or would have
        ├── InvalidRequest             400 if nothing else stands here; the client's fault
        │   ├── InvalidJson, UnknownEventType, InvalidField (and its kinds), MissingParameter, UnknownParameter
        │   ├── UnsupportedParameter, PreviousResponseNotFound, NoToolOutput, NoToolCall
        │   ├── ModelNotFound, ContextLengthExceeded, ResponseNotSuspended, InvalidAppend
        │   ├── ConnectionLimitReached, ContentPolicyViolation
        │   ├── InvalidApiKey 401, OriginNotAllowed 403, ResponseNotFound 404, RouteNotFound 404, MethodNotAllowed 405
        │   └── ResponseSuspended 409, PayloadTooLarge 413, WebSocketDisabled 426
        ├── QueueFull 429, ServerBusy 429, TooManySuspended 429
        ├── ModelFault 500             the engine failed; becomes response.failed
        └── ServerError 500            our fault
            └── ToolTimeout, ScreeningFailed 503, ShuttingDown 503
"""

from __future__ import annotations

MAX_MESSAGE = 1000
MAX_PARAM = 200
"""Messages quote what clients sent, which can be megabytes long."""
MAX_TOLD_MODELS = 8
RETRY_SOON = (("retry-after", "1"),)
"""Clients wait so many seconds and try again; without it some take a 429 for final."""


def _bounded(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


class RespserverError(Exception):
    """Base of every error that respserver raises on purpose."""


class ConfigError(RespserverError):
    """A setting is wrong; ``option`` names it as the user wrote it."""

    def __init__(self, option: str, problem: str) -> None:
        self.option = option
        self.problem = problem
        super().__init__(f"{option}: {problem}")


class ConnectionLost(RespserverError):
    """The connection broke, or never came to be. ``code`` is the WebSocket close code, if there was one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        self.code = code
        super().__init__(message)


class ApiError(RespserverError):
    """An error that a client is told.

    ``status`` is the HTTP status, also over WebSocket; ``code`` is never empty; ``param`` names the field, as in
    ``input[0].call_id``; ``headers`` are retry hints (``retry-after``).
    """

    status = 500
    type = "server_error"
    code = "server_error"
    sentence = "The server had an error while processing your request."
    """The message, if none is given."""
    hints: tuple[tuple[str, str], ...] = ()
    """The headers, if none are given."""

    def __init__(
        self,
        message: str = "",
        *,
        param: str | None = None,
        code: str | None = None,
        status: int | None = None,
        type: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.message = _bounded(message or self.sentence, MAX_MESSAGE)
        self.param = None if param is None else _bounded(param, MAX_PARAM)
        self.code = code or self.code
        self.status = status or self.status
        self.type = type or self.type
        self.headers = dict(headers or self.hints)
        super().__init__(self.message)


class ModelFault(ApiError):
    """The engine could not go on; ``code`` is the ``error.code`` that the failed response carries."""

    def __init__(self, message: str, code: str = "server_error", status: int = 500) -> None:
        super().__init__(message, code=code, status=status)


class InvalidRequest(ApiError):
    """The request cannot be served as it stands."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_request"


class InvalidJson(InvalidRequest):
    """The text is not one JSON object."""

    code = "invalid_json"

    def __init__(self, problem: str) -> None:
        super().__init__(f"We could not parse the JSON body of your request. ({problem})")


class UnknownEventType(InvalidRequest):
    """A client event whose ``type`` this server does not take in its mode."""

    code = "unknown_event_type"

    def __init__(self, name: object, hint: str = "") -> None:
        shown = f"Unknown event type: '{name}'." if isinstance(name, str) else "Missing or invalid 'type'."
        super().__init__(f"{shown} {hint}".rstrip(), param="type")


class InvalidField(InvalidRequest):
    """A field has the wrong type or an impossible value."""

    code = "invalid_value"
    lead = "Invalid"

    def __init__(self, param: str, problem: str, code: str | None = None) -> None:
        super().__init__(f"{self.lead} '{param}': {problem}", param=param, code=code)


class MissingParameter(InvalidRequest):
    """A required field is absent."""

    code = "missing_required_parameter"

    def __init__(self, param: str, hint: str = "") -> None:
        super().__init__(f"Missing required parameter: '{param}'. {hint}".rstrip(), param=param)


class UnknownParameter(InvalidRequest):
    """A field that the API does not have; only refused in strict mode."""

    code = "unknown_parameter"

    def __init__(self, param: str, hint: str = "") -> None:
        super().__init__(f"Unknown parameter: '{param}'. {hint}".rstrip(), param=param)


class UnsupportedParameter(InvalidRequest):
    """A field of the API that cannot be honoured here."""

    code = "unsupported_parameter"

    def __init__(self, param: str, reason: str = "is not supported by this server.") -> None:
        super().__init__(f"Unsupported parameter: '{param}' {reason}", param=param)


class PreviousResponseNotFound(InvalidRequest):
    """``previous_response_id`` names nothing this connection, key and store can continue."""

    code = "previous_response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Previous response with id '{response_id}' not found.", param="previous_response_id")


_CALL_WORDS = {"function_call": "function call", "custom_tool_call": "custom tool call"}


class NoToolOutput(InvalidRequest):
    """An earlier tool call is left without its output."""

    code = "no_tool_output_found"

    def __init__(self, call_id: str, kind: str = "function_call") -> None:
        super().__init__(f"No tool output found for {_CALL_WORDS.get(kind, kind)} {call_id}.", param="input")


class NoToolCall(InvalidRequest):
    """An output answers a call that the context does not hold."""

    code = "no_tool_call_found"

    def __init__(self, call_id: str, kind: str = "function_call") -> None:
        words = _CALL_WORDS.get(kind, kind)
        super().__init__(f"No tool call found for {words} output with call_id {call_id}.", param="input")


class ModelNotFound(InvalidRequest):
    """No route serves the model's name. ``served`` are the names and patterns that are; a few of them are told."""

    code = "model_not_found"

    def __init__(self, model: str, status: int = 400, served: tuple[str, ...] = ()) -> None:
        self.served = served
        told = f" This server serves {', '.join(served)}." if 0 < len(served) <= MAX_TOLD_MODELS else ""
        super().__init__(f"The requested model '{model}' does not exist.{told}", param="model", status=status)


class ContextLengthExceeded(InvalidRequest):
    """The rendered context does not fit the route's window."""

    code = "context_length_exceeded"
    sentence = "Your input exceeds the context window of this model. Please adjust your input and try again."

    def __init__(self) -> None:
        super().__init__(param="input")


class ResponseNotSuspended(InvalidRequest):
    """An append came while nothing on its lane waits for tool outputs."""

    code = "response_not_suspended"

    def __init__(self, response_id: str | None = None) -> None:
        if response_id is None:
            super().__init__("No response on this lane is suspended at a tool call.")
        else:
            super().__init__(f"Response '{response_id}' is not suspended at a tool call.", param="response_id")


class InvalidAppend(InvalidField):
    """An append holds an item that the pause does not ask for; nothing of it was taken."""

    code = "invalid_append"


class ConnectionLimitReached(InvalidRequest):
    """The socket has reached its greatest age."""

    code = "websocket_connection_limit_reached"

    def __init__(self, minutes: float) -> None:
        age = f"{minutes:g} minutes" if minutes >= 1 else f"{minutes * 60:g} seconds"
        super().__init__(
            f"Responses websocket connection limit reached ({age}). Create a new websocket connection to continue."
        )


class ContentPolicyViolation(InvalidRequest):
    """A classifier blocks the input; ``categories`` says as what, the text itself is never quoted."""

    code = "content_policy_violation"

    def __init__(self, categories: tuple[str, ...] = ()) -> None:
        self.categories = categories
        named = f" ({', '.join(categories)})" if categories else ""
        super().__init__(f"The input was refused by the content policy of this server{named}.", param="input")


class InvalidApiKey(InvalidRequest):
    """No key, or one that this server does not know."""

    status = 401
    code = "invalid_api_key"

    def __init__(self, given: bool) -> None:
        missing = "You didn't provide an API key. Provide it in an Authorization header: 'Bearer YOUR_KEY'."
        super().__init__("Incorrect API key provided." if given else missing)


class OriginNotAllowed(InvalidRequest):
    """A browser page of a foreign origin asked for the socket."""

    status = 403
    code = "origin_not_allowed"


class ResponseNotFound(InvalidRequest):
    """GET or DELETE of an id that is not stored, or not for this key."""

    status = 404
    code = "response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response with id '{response_id}' not found.", param="response_id")


class RouteNotFound(InvalidRequest):
    """The path is not one of this server's."""

    status = 404
    code = "unknown_url"

    def __init__(self, method: str, path: str, hint: str = "") -> None:
        shown = f"Invalid URL ({method} {path})"
        super().__init__(f"{shown}. {hint}" if hint else shown)


class MethodNotAllowed(InvalidRequest):
    """The path exists, the method does not."""

    status = 405
    code = "method_not_allowed"

    def __init__(self, method: str, path: str, hint: str = "") -> None:
        super().__init__(f"Method {method} is not allowed for {path}. {hint}".rstrip())


class ResponseSuspended(InvalidRequest):
    """A create tries to continue a rollout that waits for ``response.append`` (prototype mode)."""

    status = 409
    code = "response_suspended"

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"Response '{response_id}' is suspended at a tool call. Send the tool outputs in a response.append event."
        )


class PayloadTooLarge(InvalidRequest):
    """The body or message is over the documented limit, counted in bytes after decompression."""

    status = 413
    code = "payload_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request is larger than the limit of {limit} bytes.")


class WebSocketDisabled(InvalidRequest):
    """The server was started without WebSocket; clients go on over HTTP."""

    status = 426
    code = "websocket_disabled"
    sentence = "WebSocket mode is switched off on this server. Use HTTP."


class QueueFull(ApiError):
    """Too many creates wait on the connection; the socket stays open."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"
    hints = RETRY_SOON

    def __init__(self, waiting: int, size: int | None = None) -> None:
        bound = "" if size is None else f", and together they may hold {size} characters"
        super().__init__(f"{waiting} requests already wait on this connection{bound}. Try again when one has ended.")


class ServerBusy(ApiError):
    """Too many turns of the process wait for a slot; the refused one has touched nothing."""

    status = 429
    type = "rate_limit_error"
    code = "server_busy"
    hints = RETRY_SOON

    def __init__(self, waiting: int) -> None:
        super().__init__(f"{waiting} requests already wait on this server. Try again in a moment.")


class TooManySuspended(ApiError):
    """A rollout would suspend where as many as may are suspended (prototype mode); ``owner`` says of what."""

    status = 429
    type = "rate_limit_error"
    code = "too_many_suspended_rollouts"

    def __init__(self, limit: int, owner: str) -> None:
        super().__init__(f"{limit} rollouts of this {owner} already wait for tool outputs, and no more may.")


class ServerError(ApiError):
    """Our fault; the message tells nothing of our inside."""


class ToolTimeout(ServerError):
    """The client did not send the tool outputs in time (prototype mode)."""

    code = "tool_timeout"

    def __init__(self, seconds: float) -> None:
        super().__init__(f"No response.append with the pending tool outputs came within {seconds:g} seconds.")


class ScreeningFailed(ServerError):
    """A classifier that must speak could not be asked, and the settings say to refuse then."""

    status = 503
    code = "screening_failed"
    sentence = "The input could not be screened. Please try again."
    hints = RETRY_SOON


class ShuttingDown(ServerError):
    """The server is going down and takes or finishes no more work."""

    status = 503
    code = "server_shutting_down"
    sentence = "The server is shutting down. Please try again on a new connection."
