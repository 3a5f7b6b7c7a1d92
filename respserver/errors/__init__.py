"""What goes wrong, as exceptions that know how they look on the wire.

This room imports nothing: errors that carry wire objects tie knots. Foreign errors are turned into these where they
enter. An error keeps facts in fields and makes its sentence from them; the texts are the ones that clients match
(protocol.md section 4.2).

    RespserverError
    ├── ConfigError                    a bad option, file or environment variable; the command exits with 2
    ├── ConnectionLost                 a peer that we had called is gone, or never answered
    └── ApiError                       anything a client is told, with the HTTP status it has or would have
        ├── InvalidRequest             400 if nothing else stands here; the client's fault
        │   ├── InvalidJson, UnknownEventType, InvalidField (and its kinds), InvalidSchema, MissingParameter
        │   ├── UnknownParameter, UnsupportedParameter, PreviousResponseNotFound, NoToolOutput, NoToolCall
        │   ├── ItemNotFound, InvalidEncryptedContent, LoneReasoning
        │   ├── ModelNotFound, ContextLengthExceeded, ResponseNotSuspended, InvalidAppend
        │   ├── InvalidSteer, SteerTargetNotFound, SteeringNotSupported, TooManySteers, ResponseAlreadyCompleted
        │   ├── ResponseNotActive, SuccessorFailed
        │   ├── ConnectionLimitReached, InvalidStreamId, StreamLimitReached, ContentPolicyViolation
        │   ├── InvalidApiKey 401, OriginNotAllowed 403, ResponseNotFound 404, RouteNotFound 404, MethodNotAllowed 405
        │   └── ResponseSuspended 409, PayloadTooLarge 413, WebSocketDisabled 426
        ├── QueueFull 429, ServerBusy 429, RateLimitExceeded 429, TooManySuspended 429
        ├── ModelFault 500             the engine failed; becomes response.failed
        └── ServerError 500            our fault
            └── ToolTimeout, ScreeningFailed 503, ShuttingDown 503
"""

from __future__ import annotations

from respserver.errors.base import (
    MAX_MESSAGE,
    MAX_PARAM,
    RETRY_SOON,
    ApiError,
    ConfigError,
    ConnectionLost,
    InvalidRequest,
    RespserverError,
)
from respserver.errors.connections import (
    ConnectionLimitReached,
    InvalidApiKey,
    InvalidStreamId,
    MethodNotAllowed,
    OriginNotAllowed,
    PayloadTooLarge,
    RouteNotFound,
    StreamLimitReached,
    WebSocketDisabled,
)
from respserver.errors.fields import (
    InvalidField,
    InvalidJson,
    InvalidSchema,
    MissingParameter,
    UnknownEventType,
    UnknownParameter,
    UnsupportedParameter,
)
from respserver.errors.server import (
    ModelFault,
    QueueFull,
    RateLimitExceeded,
    ScreeningFailed,
    ServerBusy,
    ServerError,
    ShuttingDown,
    ToolTimeout,
    TooManySuspended,
)
from respserver.errors.steering import (
    InvalidSteer,
    ResponseAlreadyCompleted,
    ResponseNotActive,
    SteeringNotSupported,
    SteerTargetNotFound,
    SuccessorFailed,
    TooManySteers,
)
from respserver.errors.turns import (
    ContentPolicyViolation,
    ContextLengthExceeded,
    InvalidAppend,
    InvalidEncryptedContent,
    ItemNotFound,
    LoneReasoning,
    ModelNotFound,
    NoToolCall,
    NoToolOutput,
    PreviousResponseNotFound,
    ResponseNotFound,
    ResponseNotSuspended,
    ResponseSuspended,
)

__all__ = [
    "MAX_MESSAGE",
    "MAX_PARAM",
    "RETRY_SOON",
    "ApiError",
    "ConfigError",
    "ConnectionLimitReached",
    "ConnectionLost",
    "ContentPolicyViolation",
    "ContextLengthExceeded",
    "InvalidApiKey",
    "InvalidAppend",
    "InvalidEncryptedContent",
    "InvalidField",
    "InvalidJson",
    "InvalidRequest",
    "InvalidSchema",
    "InvalidSteer",
    "InvalidStreamId",
    "ItemNotFound",
    "LoneReasoning",
    "MethodNotAllowed",
    "MissingParameter",
    "ModelFault",
    "ModelNotFound",
    "NoToolCall",
    "NoToolOutput",
    "OriginNotAllowed",
    "PayloadTooLarge",
    "PreviousResponseNotFound",
    "QueueFull",
    "RateLimitExceeded",
    "ResponseAlreadyCompleted",
    "ResponseNotActive",
    "ResponseNotFound",
    "ResponseNotSuspended",
    "ResponseSuspended",
    "RespserverError",
    "RouteNotFound",
    "ScreeningFailed",
    "ServerBusy",
    "ServerError",
    "ShuttingDown",
    "SteerTargetNotFound",
    "SteeringNotSupported",
    "StreamLimitReached",
    "SuccessorFailed",
    "TooManySteers",
    "TooManySuspended",
    "ToolTimeout",
    "UnknownEventType",
    "UnknownParameter",
    "UnsupportedParameter",
    "WebSocketDisabled",
]
