"""What is wrong with a message or a body as it was written."""

from __future__ import annotations

from respserver.errors.base import InvalidRequest


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


class InvalidSchema(InvalidRequest):
    """A JSON schema is outside of what ``strict: true`` can promise; ``whose`` is ``response_format 'x'`` or
    ``function 'x'``."""

    code = "invalid_json_schema"

    def __init__(self, whose: str, problem: str, param: str, code: str | None = None) -> None:
        super().__init__(f"Invalid schema for {whose}: {problem}", param=param, code=code)


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
