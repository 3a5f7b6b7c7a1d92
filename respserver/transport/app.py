"""The HTTP routes, as a Quart app: thin, each a few lines around ``http.py`` and ``resources.py``.

Framework timers are off: a stream may be silent for as long as the model is (F34).
"""

from __future__ import annotations

import time
from typing import cast

from quart import Response, g, request
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException, RequestEntityTooLarge
from werkzeug.exceptions import MethodNotAllowed as WerkzeugMethodNotAllowed

from respserver.auth import KeyRing
from respserver.errors import (
    ApiError,
    InvalidRequest,
    PayloadTooLarge,
    ServerError,
    UnsupportedParameter,
)
from respserver.logger import get_logger
from respserver.schema.codec import encode, read_object
from respserver.transport import resources, signpost
from respserver.transport.bodies import inflate
from respserver.transport.cors import Cors
from respserver.transport.head import error_body
from respserver.transport.http import HttpTurns, SsePort, chunks
from respserver.transport.keep_alive import Message, Receive, Send
from respserver.transport.lifespan import AsgiApp
from respserver.transport.refusals import log_refusal
from respserver.turn.run import TurnResult
from respserver.turn.services import Services
from respserver.turn.stopwatch import Stopwatch

log = get_logger("respserver.http")

RESPONSES_PATHS = ("/v1/responses", "/responses", "/v1/codex/responses", "/openai/v1/responses")
"""Real clients derive these from their base URL (design.md section 8, "paths")."""
OPEN_TO_ALL = frozenset({"healthz", "signpost"})
"""Endpoints that need no key."""
API_VERSION = "2020-10-01"
STREAM = "respserver.stream"
"""Where a request's ASGI scope holds the port of its stream."""
STREAM_HEADERS = {
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
    "Content-Type": "text/event-stream; charset=utf-8",
}


def make_app(services: Services, turns: HttpTurns, keys: KeyRing) -> QuartTrio:
    """The app; it holds no state of its own."""
    app = QuartTrio("respserver")
    app.asgi_app = _end_streams(app.asgi_app)  # type: ignore[assignment, method-assign]  # so Quart wants it
    app.config["MAX_CONTENT_LENGTH"] = services.config.limits.message_bytes
    app.config["BODY_TIMEOUT"] = None
    app.config["RESPONSE_TIMEOUT"] = None
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.strict_slashes = False
    app.url_map.merge_slashes = False  # a path with two slashes is unknown; a redirect would be HTML
    _add_frame(app, services, keys, Cors(services.config.cors_origin))
    _add_errors(app, services)
    for path in RESPONSES_PATHS:
        _add_responses(app, path, services, turns)
    _add_models(app, services)
    return app


def _add_frame(app: QuartTrio, services: Services, keys: KeyRing, cors: Cors) -> None:
    @app.before_request
    async def open_request() -> Response | None:
        g.started = time.perf_counter()
        g.request_id = services.new_id("req")
        if request.method == "OPTIONS":
            return _options()
        if request.endpoint not in OPEN_TO_ALL:
            g.tenant = keys.authenticate(request.headers.get("Authorization"))
        return None

    @app.after_request
    async def close_request(response: Response) -> Response:
        response.headers["x-request-id"] = g.get("request_id", "")
        response.headers["openai-version"] = API_VERSION
        started = g.get("started", time.perf_counter())
        response.headers["openai-processing-ms"] = str(int((time.perf_counter() - started) * 1000))
        if "tenant" in g:
            response.headers.update(services.rates.headers(g.tenant))
        response.headers.update(cors.fields(request.headers, response.headers.get("Allow")))
        return response

    @app.get("/healthz")
    async def healthz() -> Response:
        return _json(encode({"status": "ok", "mode": services.config.mode}))

    async def show_signpost() -> Response:
        return _json(signpost.page(services.config, needs_key=not keys.is_open))

    for path in signpost.PATHS:
        app.add_url_rule(path, "signpost", show_signpost, methods=["GET"])


def _add_responses(app: QuartTrio, path: str, services: Services, turns: HttpTurns) -> None:
    async def create() -> Response:
        coding = request.headers.get("Content-Encoding", "")
        sent = await request.get_data(cache=False, as_text=False, parse_form_data=False)
        watch = Stopwatch(services.clock)
        body = inflate(sent, coding, services.config.limits.message_bytes)
        fields = read_object(body)  # what is none is no create: over WebSocket it counts as nothing either
        g.is_turn = True
        outcome = await turns.run(fields, tenant=g.tenant, request_id=g.request_id, watch=watch)
        return _stream(outcome) if isinstance(outcome, SsePort) else _whole(outcome)

    async def read(response_id: str) -> Response:
        if request.args.get("stream", "").lower() == "true":
            raise UnsupportedParameter("stream", "is not supported when a response is read.")
        return _json(await resources.get_response(services, response_id, g.tenant))

    async def delete(response_id: str) -> Response:
        return _json(encode(await resources.delete_response(services, response_id, g.tenant)))

    name = path.strip("/").replace("/", "_")
    app.add_url_rule(path, f"create_{name}", create, methods=["POST"])
    app.add_url_rule(f"{path}/<response_id>", f"read_{name}", read, methods=["GET"])
    app.add_url_rule(f"{path}/<response_id>", f"delete_{name}", delete, methods=["DELETE"])


def _add_models(app: QuartTrio, services: Services) -> None:
    @app.get("/v1/models")
    async def models() -> Response:
        return _json(encode(resources.list_models(services)))

    @app.get("/v1/models/<path:name>")
    async def model(name: str) -> Response:
        return _json(encode(resources.get_model(services, name)))


def _add_errors(app: QuartTrio, services: Services) -> None:
    @app.errorhandler(ApiError)
    async def api_error(error: ApiError) -> Response:
        return _error(error)

    @app.errorhandler(HTTPException)
    async def http_error(error: HTTPException) -> Response:
        if isinstance(error, RequestEntityTooLarge):
            return _error(PayloadTooLarge(services.config.limits.message_bytes))
        if isinstance(error, WerkzeugMethodNotAllowed) and not _names_an_operation():
            is_endpoint = request.path.rstrip("/") in RESPONSES_PATHS
            websocket = services.config.websocket
            answer = _error(
                signpost.wrong_method(_method(), request.path, is_endpoint=is_endpoint, websocket=websocket)
            )
            answer.headers["Allow"] = _allow(error)
            return answer
        if error.code in (404, 405):
            return _error(signpost.unknown(_method(), request.path))
        return _error(InvalidRequest(error.description or "Bad request.", status=error.code))

    @app.errorhandler(Exception)
    async def fault(error: Exception) -> Response:
        log.error("request_fault", request_id=g.get("request_id", ""), exc_info=error)
        return _error(ServerError())


def _options() -> Response:
    """What a path takes. Browsers ask ahead of a request (preflight), and without its key."""
    problem = request.routing_exception
    if not isinstance(problem, WerkzeugMethodNotAllowed):  # no rule has OPTIONS, so that every path has a problem
        raise signpost.unknown(request.method, request.path)
    response = Response(b"", status=204, headers={"Allow": _allow(problem)})
    del response.headers["Content-Type"], response.headers["Content-Length"]  # of nothing (RFC 9110 section 8.6)
    return response


def _allow(error: WerkzeugMethodNotAllowed) -> str:
    return ", ".join(sorted({*(error.valid_methods or ()), "OPTIONS"}))


def _method() -> str:
    """As it is told in errors: the answer to HEAD is that to GET, so it must not be shorter by a word."""
    return "GET" if request.method == "HEAD" else request.method


def _names_an_operation() -> bool:
    """Whether the request asks for something like ``/responses/compact``, which only looks like a response's id."""
    return request.method == "POST" and request.path.startswith(tuple(f"{path}/" for path in RESPONSES_PATHS))


def _whole(result: TurnResult) -> Response:
    if result.error is not None:
        raise result.error
    return _json(encode(result.response))


def _stream(port: SsePort) -> Response:
    cast(Message, request.scope)[STREAM] = port  # hypercorn's type knows its own keys only
    response = Response(chunks(port), headers=STREAM_HEADERS)
    response.timeout = None
    return response


def _end_streams(app: AsgiApp) -> AsgiApp:
    """Cancel a stream's turn when its request is over: a client may leave before anybody has begun to read (F29)."""

    async def serve(scope: Message, receive: Receive, send: Send) -> None:
        try:
            await app(scope, receive, send)
        finally:
            if STREAM in scope:
                scope[STREAM].scope.cancel()

    return serve


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status=status, headers={"Content-Type": "application/json"})


def _error(error: ApiError) -> Response:
    if not g.get("is_turn", False):
        log_refusal(error, request.method, request.path, g.get("request_id", ""))
    response = _json(error_body(error), error.status)
    response.headers.update(error.headers)
    return response
