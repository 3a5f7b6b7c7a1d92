"""Searches that the server runs itself: read with numbers, quoted by them, sealed into their items."""

from __future__ import annotations

import pytest

from respserver.engines.sim import Script, call
from respserver.tools.search import SearchHost
from tests.support.hosts import FakeHost, Library, check_turn, kinds, mcp
from tests.support.live import ask, text_of, user
from tests.support.sdk import check_response
from tests.support.spy import Spy

TRANSPORTS = pytest.mark.parametrize("transport", ["websocket", "sse", "json"])


@TRANSPORTS
async def test_a_search_is_run_read_and_quoted(serve, connect, transport: str) -> None:
    library = Library()
    spy = Spy(Script.of(call("web_search", query="tides"), "High at noon [1], says the moon [2][3]."))
    server = await serve(engine=spy, hosts=[SearchHost(library)])
    answer = await ask(server, await connect(server), transport, input="go", tools=[{"type": "web_search"}])
    response = answer["response"]
    check_response(response)
    assert kinds(response) == ["web_search_call", "message"]
    assert library.asked == [("tides", 5)]
    searched, message = response["output"]
    assert searched["id"].startswith("ws_")
    assert searched["action"] == {"type": "search", "query": "tides"}
    assert searched["status"] == "completed"
    assert message["content"][0]["annotations"] == [
        {"type": "url_citation", "url": "file:///tides.md", "title": "Tides", "start_index": 13, "end_index": 16},
        {"type": "url_citation", "url": "file:///moon.md", "title": "The moon ☾", "start_index": 32, "end_index": 35},
    ]
    assert spy.contexts[1].endswith(
        "hosted web_search: [1] Tides\nfile:///tides.md\nHigh at noon.\n\n[2] The moon ☾\nfile:///moon.md\nIt pulls."
    )


async def test_the_events_of_a_search(serve, connect) -> None:
    server = await serve(Script.of(call("web_search", query="x"), "See [2]."), hosts=[SearchHost(Library())])
    frames = await (await connect(server)).turn(
        input="go",
        tools=[{"type": "web_search_preview", "search_context_size": "low"}],
        include=["web_search_call.action.sources"],
    )
    response = check_turn(frames)
    assert response["output"][0]["action"]["sources"] == [
        {"type": "url", "url": "file:///tides.md"},
        {"type": "url", "url": "file:///moon.md"},
    ]
    assert [frame["type"].removeprefix("response.") for frame in frames][2:7] == [
        "output_item.added",
        "web_search_call.in_progress",
        "web_search_call.searching",
        "web_search_call.completed",
        "output_item.done",
    ]
    (annotated,) = [at for at, frame in enumerate(frames) if frame["type"] == "response.output_text.annotation.added"]
    assert frames[annotated + 1]["type"] == "response.output_text.done"
    assert frames[annotated]["annotation"]["start_index"] == 4
    assert frames[annotated]["annotation_index"] == 0


async def test_searches_that_fail_or_find_nothing(serve, connect) -> None:
    said = [call("web_search", query="broken"), call("web_search", query="nothing"), call("web_search", "{")]
    spy = Spy(Script.of(said, "No source [1]."))
    wire = await connect(await serve(engine=spy, hosts=[SearchHost(Library())]))
    response = check_turn(await wire.turn(input="go", tools=[{"type": "web_search"}]))
    assert [item["status"] for item in response["output"]] == ["failed", "completed", "failed", "completed"]
    assert response["output"][-1]["content"][0]["annotations"] == []
    assert "Error: The search failed." in spy.contexts[1]
    assert "hosted web_search: Nothing was found." in spy.contexts[1]


async def test_numbers_of_sources_go_on_through_the_chain(serve, connect) -> None:
    script = Script.of(call("web_search", query="a"), "one", call("web_search", query="b"), "Both [1] and [4].")
    server = await serve(script, hosts=[SearchHost(Library())])
    wire, tools = await connect(server), [{"type": "web_search"}]
    first = await wire.completed(input="go", tools=tools)
    for given in (
        {"input": "on", "previous_response_id": first["id"]},
        {"input": [user("go"), *first["output"], user("on")]},
    ):
        for one in (wire, await connect(server)):  # from the cache, then from the store
            second = await one.completed(tools=tools, **given)
            cited = second["output"][-1]["content"][0]["annotations"]
            assert [citation["url"] for citation in cited] == ["file:///tides.md", "file:///moon.md"]


@pytest.mark.parametrize("name", [".web_search", "."])
async def test_a_call_of_no_name_is_not_the_searchs(serve, connect, name: str) -> None:
    wire = await connect(await serve(Script.of(call(name, query="tides")), hosts=[SearchHost(Library())]))
    response = await wire.completed(input="go", tools=[{"type": "web_search"}])
    assert kinds(response) == ["function_call"]


async def test_without_a_provider_nothing_is_searched(serve, connect) -> None:
    wire = await connect(await serve())
    response = await wire.completed(input="go", tools=[{"type": "web_search"}])
    assert kinds(response) == ["message"]


async def test_the_embedded_model_searches_for_what_it_was_asked(serve, connect) -> None:
    library = Library()
    wire = await connect(await serve(hosts=[SearchHost(library)]))
    response = await wire.completed(input="When is the tide?", tools=[{"type": "web_search"}])
    assert library.asked == [("When is the tide?", 5)]
    assert "High at noon." in text_of(response)


async def test_what_was_sampled_is_found_again_with_what_the_tools_said(serve, connect) -> None:
    """A client that sends everything again has nothing tokenised again: calls and outputs are kept as one."""
    said = [call("web_search", query="tides"), "So I look.", call("srv.look", n=1)]
    server = await serve(Script.of(said, "end", "more"), hosts=[SearchHost(Library()), FakeHost()])
    wire, tools = await connect(server), [{"type": "web_search"}, mcp()]
    first = await wire.completed(input=[user("go")], tools=tools)
    misses = server.metrics.token_cache_misses
    await wire.completed(input=[user("go"), *first["output"], user("on")], tools=tools)
    assert server.metrics.token_cache_misses == misses + 1  # the new message
