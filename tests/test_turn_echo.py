"""The Response shows the request back: every key in every snapshot, defaults filled in, and as the SDK types it."""

from __future__ import annotations

from typing import Any

import pytest

from respserver.engines.sim import Script, call
from respserver.schema.response import Response
from tests.support.live import Wire, http, post, stream
from tests.support.sdk import check_event, check_response

Json = dict[str, Any]
ALWAYS = {*Response.__struct_fields__} - {"prompt_cache_diagnostics"}
TOOL: Json = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
}
PLAIN: Json = {
    "background": False, "conversation": None, "frequency_penalty": 0.0, "instructions": None,
    "max_output_tokens": None, "max_tool_calls": None, "metadata": {}, "model": "sim", "moderation": None,
    "parallel_tool_calls": True, "presence_penalty": 0.0, "previous_response_id": None, "prompt": None,
    "prompt_cache_key": None, "prompt_cache_options": None, "prompt_cache_retention": None,
    "reasoning": {"effort": None, "summary": None}, "safety_identifier": None, "store": True, "temperature": 1.0,
    "text": {"format": {"type": "text"}, "verbosity": "medium"}, "tool_choice": "auto", "tools": [],
    "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "user": None,
}  # fmt: skip
"""What a request that says nothing gets back; ``service_tier`` and what the turn fills in are apart."""
FULL: Json = {
    "frequency_penalty": 0.5, "instructions": "Be brief.", "max_output_tokens": 99, "max_tool_calls": 3,
    "metadata": {"a": "b"}, "parallel_tool_calls": False, "presence_penalty": -0.5,
    "prompt_cache_key": "key", "prompt_cache_retention": "24h",
    "reasoning": {"effort": "low", "summary": "auto", "context": "all_turns", "mode": "pro"},
    "safety_identifier": "hashed", "store": False, "temperature": 0.2, "tool_choice": "none",
    "top_logprobs": 2, "top_p": 0.9, "truncation": "auto", "user": "u",
}  # fmt: skip
"""What is echoed as it was said."""


async def snapshots(server: Any, connect: Any, transport: str, fields: Json) -> list[Json]:
    """The Responses of a turn's created, in_progress and terminal events; over plain JSON there is the last alone."""
    if transport == "json":
        answer = await post(server, **fields)
        assert answer.status_code == 200, answer.text
        check_response(answer.json())
        return [answer.json()]
    if transport == "sse":
        events = await stream(server, **fields)
    else:
        wire: Wire = await connect(server)
        events = await wire.turn(**fields)
    for event in events:
        check_event(event)
    return [event["response"] for event in events if "response" in event]


TRANSPORTS = ["websocket", "sse", "json"]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("fields", [{}, FULL], ids=["nothing", "everything"])
async def test_every_snapshot_has_every_key_and_the_requests_values(
    serve: Any, connect: Any, transport: str, fields: Json
) -> None:
    server = await serve(Script.of("Done."))
    shown = await snapshots(server, connect, transport, {"input": "hi", **fields})
    assert len(shown) == (1 if transport == "json" else 3)
    for response in shown:
        assert set(response) == ALWAYS
        assert {name: response[name] for name in PLAIN} == {**PLAIN, **fields}
    if shown[-1]["store"]:
        async with http(server) as client:
            assert (await client.get(f"/responses/{shown[-1]['id']}")).json() == shown[-1]


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("said", "echoed"),
    [
        ({"text": {"verbosity": "low"}}, {"text": {"format": {"type": "text"}, "verbosity": "low"}}),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}},
            {
                "text": {
                    "format": {
                        "type": "json_schema",
                        "name": "n",
                        "schema": {"type": "object"},
                        "description": None,
                        "strict": False,
                    },
                    "verbosity": "medium",
                }
            },
        ),
        ({"tools": [TOOL]}, {"tools": [{**TOOL, "description": None, "strict": True}]}),
        ({"tools": [TOOL], "tool_choice": {**TOOL}}, {"tool_choice": {"type": "function", "name": "look"}}),
        ({"service_tier": "fast"}, {"service_tier": "priority"}),
        ({"prompt_cache_options": {}},
         {"prompt_cache_options": {"mode": "implicit", "ttl": "30m", "comparison_response_id": None}}),
        ({"prompt_cache_options": {"mode": "explicit", "ttl": "12h", "prewarm": False}},
         {"prompt_cache_options": {"mode": "explicit", "ttl": "12h", "comparison_response_id": None}}),
        ({"image": {}, "multi_agent": {"enabled": False}, "moderation": None}, {"moderation": None}),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
async def test_what_was_left_out_is_filled_in(
    serve: Any, connect: Any, transport: str, said: Json, echoed: Json
) -> None:
    server = await serve(Script.of(call("look"), on_end="repeat"))
    for response in await snapshots(server, connect, transport, {"input": "hi", **said}):
        assert {name: response[name] for name in echoed} == echoed


async def test_tools_come_back_unharmed_and_reach_the_model(serve: Any, connect: Any) -> None:
    tools: list[Json] = [
        {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}},
        {
            "type": "namespace",
            "name": "fs",
            "description": "Files.",
            "tools": [
                {
                    "type": "function",
                    "name": "ls",
                    "async": True,
                    "defer_loading": True,
                    "allowed_callers": ["programmatic"],
                    "output_schema": {"type": "string", "maxLength": 1000000000000000000000000000000},
                }
            ],
        },
        {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": {"type": "object"}},
        {"type": "file_search", "vector_store_ids": ["vs_1"], "filters": {"type": "eq", "key": "a", "value": 1.0}},
    ]
    server = await serve()
    wire: Wire = await connect(server)
    response = await wire.completed(input="hi", tools=tools, tool_choice={"type": "custom", "name": "p"})
    assert response["tools"] == tools
    assert [item["name"] for item in response["output"]] == ["p"]


@pytest.mark.parametrize(("options", "details"), [
    (None, None),
    ({}, {"ttl_30m_tokens": ..., "ttl_12h_tokens": 0}),
    ({"ttl": "12h"}, {"ttl_30m_tokens": 0, "ttl_12h_tokens": ...}),
], ids=str)  # fmt: skip
async def test_usage_tells_for_how_long_new_tokens_are_kept(
    serve: Any, connect: Any, options: Json | None, details: Json | None
) -> None:
    wire: Wire = await connect(await serve(Script.of("One.", "Two.")))
    first = await wire.completed(input="hi", prompt_cache_options=options)
    second = await wire.completed(input="on", previous_response_id=first["id"], prompt_cache_options=options)
    for response in (first, second):
        told = response["usage"]["input_tokens_details"]
        written = told["cache_write_tokens"]
        wanted = details and {name: written if value is ... else value for name, value in details.items()}
        assert told.get("cache_write_tokens_details") == wanted
        assert written + told["cached_tokens"] == response["usage"]["input_tokens"]
        assert written > 0


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_prewarm_is_a_warm_up_whatever_generate_says(serve: Any, connect: Any, transport: str) -> None:
    server = await serve(Script.of("Done."))
    fields: Json = {"input": "hi", "prompt_cache_options": {"prewarm": True}}
    if transport == "websocket":
        fields["generate"] = True
    *_, warm = await snapshots(server, connect, transport, fields)
    assert (warm["output"], warm["usage"]["output_tokens"]) == ([], 0)
    assert warm["usage"]["input_tokens"] > 0
    answer = await post(server, previous_response_id=warm["id"])
    assert answer.json()["output"][0]["content"][0]["text"] == "Done."


@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_metadata_may_be_sent_back_with_what_the_server_has_added(
    serve: Any, connect: Any, transport: str
) -> None:
    """What is the server's to say is neither counted among sixteen pairs nor echoed."""
    mine = {f"key {number}": "" for number in range(16)}
    sent = {**mine, "safety_verdict": "flag gossip", "respserver_timings": "{}"}
    for shown in await snapshots(await serve(), connect, transport, {"input": "hi", "metadata": sent}):
        assert shown["metadata"] == mine
