"""Why a turn is refused, or a stored response is not there, though the request reads well."""

from __future__ import annotations

from respserver.errors.base import MAX_TOLD_MODELS, InvalidRequest
from respserver.errors.fields import InvalidField


class PreviousResponseNotFound(InvalidRequest):
    """``previous_response_id`` names nothing this connection, key and store can continue."""

    code = "previous_response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Previous response with id '{response_id}' not found.", param="previous_response_id")


class ResponseNotFound(InvalidRequest):
    """GET or DELETE of an id that is not stored, or not for this key."""

    status = 404
    code = "response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response with id '{response_id}' not found.", param="response_id")


class ItemNotFound(InvalidRequest):
    """A reference to an item that is not stored, or not for this key."""

    code = "item_not_found"

    def __init__(self, item_id: str, param: str) -> None:
        super().__init__(
            f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. "
            "Try again with `store` set to true, or remove this item from your input.",
            param=param,
        )


class InvalidEncryptedContent(InvalidRequest):
    """What an item has sealed was changed, or sealed elsewhere. ``item`` is its id, or its place if it has none."""

    code = "invalid_encrypted_content"

    def __init__(self, item: str, param: str) -> None:
        super().__init__(f"The encrypted content for item {item} could not be verified.", param=param)


class LoneReasoning(InvalidRequest):
    """A reasoning item that nothing of the model's follows; only refused in strict mode."""

    code = "reasoning_without_following_item"

    def __init__(self, item: str) -> None:
        super().__init__(
            f"Item '{item}' of type 'reasoning' was provided without its required following item.", param="input"
        )


_CALL_WORDS = {
    "function_call": "function call",
    "custom_tool_call": "custom tool call",
    "shell_call": "shell call",
    "local_shell_call": "local shell call",
    "apply_patch_call": "apply patch call",
    "computer_call": "computer call",
    "tool_search_call": "tool search call",
    "mcp_approval_request": "MCP approval request",
}


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


class ContentPolicyViolation(InvalidRequest):
    """A classifier blocks the input; ``categories`` says as what, the text itself is never quoted."""

    code = "content_policy_violation"

    def __init__(self, categories: tuple[str, ...] = ()) -> None:
        self.categories = categories
        named = f" ({', '.join(categories)})" if categories else ""
        super().__init__(f"The input was refused by the content policy of this server{named}.", param="input")


class ResponseNotSuspended(InvalidRequest):
    """An append came while nothing on its lane waits for tool outputs."""

    code = "response_not_suspended"

    def __init__(self, response_id: str | None = None) -> None:
        if response_id is None:
            super().__init__("No response on this lane is suspended at a tool call.")
        else:
            super().__init__(f"Response '{response_id}' is not suspended on this lane.", param="response_id")


class InvalidAppend(InvalidField):
    """An append holds an item that the pause does not ask for; nothing of it was taken."""

    code = "invalid_append"


class ResponseSuspended(InvalidRequest):
    """A create tries to continue a rollout that waits for ``response.append`` (prototype mode)."""

    status = 409
    code = "response_suspended"

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"Response '{response_id}' is suspended at a tool call. Send the tool outputs in a response.append event of"
            " its lane."
        )
