"""What an MCP server does wrong, and where it is: every fault is a text for the item, and nothing stays open."""

from __future__ import annotations

import gc
import json
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from respserver.tools.base import Result, ToolboxUnavailable
from respserver.tools.mcp_http import ANSWER_BYTES, McpFailed
from respserver.tools.mcp_wire import MAX_TOOLS, raise_ours
from tests.support.mcp_kit import TOOL, Answer, FakeServer, Json, handshake, open_box, result

# Any in this file: JSON.

HANGS = Answer(hangs=True)
PAGE = Answer(b"<html>sorry</html>", type="text/html")
MOVED = Answer(status=307, headers={"location": "http://127.0.0.1:1/elsewhere?key=quiet"})
OVER = Answer(b'{"x":"' + bytes(b"x" * ANSWER_BYTES) + b'"}')


def stream(*events: str) -> Callable[[Json], Answer]:
    """An event stream; ``ID`` stands for the request's id."""
    return lambda asked: Answer(
        "".join(events).replace("ID", json.dumps(asked["id"])).encode(), type="text/event-stream"
    )


def error(message: str, status: int = 200) -> Callable[[Json], Answer]:
    def answer(asked: Json) -> Answer:
        body = {"jsonrpc": "2.0", "id": asked.get("id"), "error": {"code": -32602, "message": message}}
        return Answer(json.dumps(body).encode(), status)

    return answer


@pytest.fixture(autouse=True)
async def _nothing_stays() -> AsyncIterator[None]:
    tasks = trio.lowlevel.current_statistics().tasks_living
    yield
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    gc.collect()  # a generator that was left warns, which is an error here


ALWAYS = {
    "status 401": (Answer(b'{"error":"no"}', 401), "it answered with status 401"),
    "status 500": (Answer(b"Internal Server Error", 500), "it answered with status 500"),
    "redirect": (MOVED, "it answered with status 307, and redirects are not followed"),
    "page": (PAGE, "its answer is no JSON-RPC message"),
    "garbage": (Answer(b"\xff\x00{"), "its answer is no JSON-RPC message"),
    "half": (Answer(b'{"jsonrpc":"2.0","id":1,"res'), "its answer is no JSON-RPC message"),
    "list": (Answer(b"[]"), "its answer is no JSON-RPC message"),
    "nothing": (Answer(status=202), "server answered a request with 202 Accepted"),
    "too much": (OVER, f"the answer is larger than {ANSWER_BYTES} bytes"),
    "endless line": (stream("data: " + "x" * (ANSWER_BYTES + 70_000)), "is larger than"),
    "cut stream": (stream("id: 7\ndata:\n\n"), "the answer's event stream ended without a reply"),
    "bad stream": (stream("data: {\n\n"), "its answer is no JSON-RPC message"),
    "refusal": (error("no such tool"), "no such tool"),
    "refusal with a status": (error("bad params", 400), "bad params"),
    "words": (error("x" * 10_000), "x" * 400),
    "wrong result": (result(tools=5, content=5), "its answer breaks the protocol"),
}


@pytest.mark.parametrize(("answer", "problem"), ALWAYS.values(), ids=ALWAYS)
async def test_a_list_that_cannot_be_had_says_why(answer: Any, problem: str, caplog: pytest.LogCaptureFixture) -> None:
    server = FakeServer(tools_list=answer)
    async with server.served() as url:
        with pytest.raises(ToolboxUnavailable) as caught:
            async with open_box(f"{url}?key=quiet", authorization="t0ken"):
                pass
        await trio.testing.wait_all_tasks_blocked()
        assert server.open == 0
    assert str(caught.value).startswith("MCP server 'harbour': ")
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 1000
    (record,) = caplog.records
    assert not any(secret in f"{caught.value} {record.__dict__}" for secret in ("quiet", "t0ken"))


@pytest.mark.parametrize("method", ["server/discover", "initialize"])
@pytest.mark.parametrize("answer", [PAGE, Answer(status=401)], ids=["page", "401"])
async def test_a_handshake_that_fails_is_a_list_that_cannot_be_had(method: str, answer: Answer) -> None:
    server = FakeServer(**{method.replace("/", "_"): answer})
    if method == "server/discover" and answer.status == 401:
        server.handlers["initialize"] = answer
    async with server.served() as url:
        with pytest.raises(ToolboxUnavailable):
            async with open_box(url):
                pass


@pytest.mark.parametrize("method", ["server/discover", "initialize", "notifications/initialized", "tools/list"])
async def test_a_server_that_falls_silent_before_its_tools_are_listed_has_a_deadline(
    autojump_clock: MockClock, method: str
) -> None:
    server = FakeServer()
    server.handlers[method] = HANGS
    async with server.served() as url:
        with pytest.raises(ToolboxUnavailable, match="within 3 seconds"):
            async with open_box(url, list_seconds=3):
                pass
        await trio.testing.wait_all_tasks_blocked()
        assert server.open == 0


@pytest.mark.parametrize(("answer", "problem"), ALWAYS.values(), ids=ALWAYS)
async def test_a_call_that_goes_wrong_is_a_result_and_the_next_one_works(answer: Any, problem: str) -> None:
    server = FakeServer(tools_call=answer)
    async with server.served() as url, open_box(url) as box:
        failed = await box.call("harbour.tide", "{}")
        assert problem in (failed.error or "")
        assert not failed.text
        server.handlers["tools/call"] = result(content=[{"type": "text", "text": "high"}])
        assert await box.call("harbour.tide", "{}") == Result(text="high")


async def test_a_server_that_is_down_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        with pytest.raises(ToolboxUnavailable, match=r"cannot connect to 127\.0\.0\.1"):
            async with open_box(f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"):
                pass


async def test_a_server_that_goes_is_a_result() -> None:
    server = FakeServer()
    async with trio.open_nursery() as nursery:
        served = server.served()
        url = await served.__aenter__()
        async with open_box(url) as box:
            await served.__aexit__(None, None, None)
            failed = await box.call("harbour.tide", "{}")
        nursery.cancel_scope.cancel()
    assert failed.error is not None
    assert "connect" in failed.error


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"content": []}, Result(text="")),
        ({"content": [], "structuredContent": {"m": 1.5}}, Result(text='{"m":1.5}')),
        ({"content": [{"type": "text", "text": "a"}], "structuredContent": {"m": 1}}, Result(text="a")),
        (
            {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "isError": True},
            Result(error="a\nb"),
        ),
        ({"content": [], "isError": True}, Result(error="the tool failed")),
        (
            {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]},
            Result(text='{"name":"a","uri":"file:///a","type":"resource_link"}'),
        ),
    ],
)
async def test_what_a_result_holds_becomes_text(fields: Json, expected: Result) -> None:
    async with FakeServer(tools_call=result(**fields)).served() as url, open_box(url) as box:
        assert await box.call("harbour.tide", "{}") == expected


async def test_what_a_server_sends_before_its_reply_is_passed_over() -> None:
    progress = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 0.5}}
    other = {"jsonrpc": "2.0", "id": "other", "result": {}}
    reply = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text",\ndata: "text":"high"}]}}'
    events = [
        f"event: message\ndata: {text if isinstance(text, str) else json.dumps(text)}\n\n"
        for text in (progress, other, reply)
    ]
    async with FakeServer(tools_call=stream(": ping\n\n", *events, events[0])).served() as url, open_box(url) as box:
        assert await box.call("harbour.tide", "{}") == Result(text="high")


async def test_all_pages_of_a_list_are_read() -> None:
    def page(asked: Json) -> Answer:
        number = int(asked.get("params", {}).get("cursor", "0"))
        more = {"nextCursor": str(number + 1)} if number < 2 else {}
        return result(tools=[{**TOOL, "name": f"tool{number}"}], **more)(asked)

    server = FakeServer(tools_list=page, tools_call=result(content=[]))
    async with server.served() as url, open_box(url) as box:
        assert [tool.name for tool in box.tools] == ["harbour.tool0", "harbour.tool1", "harbour.tool2"]
        await box.call("harbour.tool2", "{}")
    assert server.seen.count("tools/list") == 3


async def test_a_list_without_an_end_is_cut() -> None:
    def page(asked: Json) -> Answer:
        number = int(asked.get("params", {}).get("cursor", "0"))
        tools = [{**TOOL, "name": f"tool{number}_{index}"} for index in range(300)]
        return result(tools=tools, nextCursor=str(number + 1))(asked)

    server = FakeServer(tools_list=page)
    async with server.served() as url, open_box(url) as box:
        assert len(box.tools) == MAX_TOOLS
    assert server.seen.count("tools/list") == 4


async def test_pages_that_are_too_much_together_are_too_much() -> None:
    def page(asked: Json) -> Answer:
        number = int(asked.get("params", {}).get("cursor", "0"))
        return result(tools=[{**TOOL, "description": "x" * (ANSWER_BYTES // 3)}], nextCursor=str(number + 1))(asked)

    async with FakeServer(tools_list=page).served() as url:
        with pytest.raises(ToolboxUnavailable, match="what it lists is larger than"):
            async with open_box(url):
                pass


async def test_tools_whose_names_cannot_be_said_are_left_out_and_a_name_counts_once() -> None:
    names = ["tide", "", "a b", "a\nb", "höhe", "x" * 129, "tide", "a.b/c-d_e"]
    server = FakeServer(tools_list=result(tools=[{**TOOL, "name": name} for name in names]))
    async with server.served() as url, open_box(url) as box:
        assert [tool.name for tool in box.tools] == ["harbour.tide", "harbour.a.b/c-d_e"]


async def test_a_session_that_the_server_has_forgotten_is_begun_anew_once() -> None:
    sessions = iter(["one", "two", "three"])
    server = FakeServer(initialize=lambda asked: handshake(next(sessions))(asked))
    server.handlers["tools/call"] = lambda asked: (
        Answer(status=404)
        if server.heads[-1]["mcp-session-id"] == "one"
        else result(content=[{"type": "text", "text": server.heads[-1]["mcp-session-id"]}])(asked)
    )
    async with server.served() as url, open_box(url) as box:
        assert await box.call("harbour.tide", "{}") == Result(text="two")
        server.handlers["tools/call"] = Answer(status=404)
        lost = await box.call("harbour.tide", "{}")
        assert lost.error == "the server has forgotten the session"
    assert server.seen.count("initialize") == 3
    assert (server.seen[-1], server.heads[-1]["mcp-session-id"]) == ("DELETE", "three")


async def test_calls_side_by_side_that_have_lost_their_session_begin_one_new_one() -> None:
    sessions = iter(["one", "two", "three", "four"])
    server = FakeServer(initialize=lambda asked: handshake(next(sessions))(asked))
    arrived = 0

    def call(asked: Json) -> Answer:
        if server.heads[-1]["mcp-session-id"] != "one":
            return result(content=[{"type": "text", "text": server.heads[-1]["mcp-session-id"]}])(asked)
        nonlocal arrived
        arrived += 1
        return Answer(status=404, slow=arrived * 0.02)  # one is told when another one has begun anew already

    server.handlers["tools/call"] = call
    results: list[Result] = []
    async with server.served() as url, open_box(url) as box:

        async def ask() -> None:
            results.append(await box.call("harbour.tide", "{}"))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(ask)
    assert (arrived, results) == (3, [Result(text="two")] * 3)
    assert server.seen.count("initialize") == server.seen.count("notifications/initialized") == 2


async def test_a_session_id_that_no_header_can_carry_is_a_list_that_cannot_be_had() -> None:
    server = FakeServer(initialize=handshake(b"h\xe9"))
    async with server.served() as url:
        with pytest.raises(ToolboxUnavailable, match="its session id cannot be sent"):
            async with open_box(url):
                pass


async def test_requests_of_a_session_have_ids_of_their_own() -> None:
    ids: list[Any] = []

    def call(asked: Json) -> Answer:
        ids.append(asked["id"])
        return result(content=[])(asked)

    async with FakeServer(tools_call=call).served() as url, open_box(url) as box:
        for _ in range(3):
            await box.call("harbour.tide", "{}")
    assert len(set(ids)) == 3


@pytest.mark.parametrize("ending", [HANGS, Answer(status=500)], ids=["silence", "500"])
async def test_the_end_of_a_session_is_bounded_whatever_the_server_does(
    autojump_clock: MockClock, ending: Answer
) -> None:
    async with FakeServer(initialize=handshake("s"), DELETE=ending).served() as url:
        start = trio.current_time()
        async with open_box(url):
            pass
        assert trio.current_time() - start <= 1


async def test_a_cancelled_call_is_told_to_a_server_that_would_go_on(autojump_clock: MockClock) -> None:
    server = FakeServer(initialize=handshake("s"), tools_call=HANGS)
    told: list[Json] = []

    def hear(asked: Json) -> Answer:
        told.append(asked)
        return Answer(status=202)

    server.handlers["notifications/cancelled"] = hear
    async with server.served() as url, open_box(url) as box:
        with trio.move_on_after(1):
            await box.call("harbour.tide", "{}")
    assert [note["params"]["requestId"] for note in told] == [4]
    assert "id" not in told[0]


async def test_the_end_of_a_session_is_told_when_the_connection_is_cancelled() -> None:
    server = FakeServer(initialize=handshake("s"))
    async with server.served() as url:
        with trio.CancelScope() as scope:
            async with open_box(url):
                scope.cancel()
    assert server.seen[-1] == "DELETE"


async def test_a_redirect_is_not_followed_though_it_stays_on_the_host() -> None:
    server = FakeServer(tools_call=Answer(status=307, headers={"location": "/elsewhere"}))
    async with server.served() as url, open_box(url) as box:
        assert "redirects are not followed" in str((await box.call("harbour.tide", "{}")).error)
    assert server.seen.count("tools/call") == 1


async def test_what_a_server_says_of_its_results_is_not_worked_out_here() -> None:
    """Such a schema takes minutes, in which nobody would be served."""
    steps: Json = {f"d{step}": {"anyOf": [{"$ref": f"#/$defs/d{step + 1}"}] * 2} for step in range(40)}
    schema = {
        "type": "object",
        "$defs": {**steps, "d40": {"type": "string"}},
        "properties": {"n": {"$ref": "#/$defs/d0"}},
    }
    server = FakeServer(
        tools_list=result(tools=[{**TOOL, "outputSchema": schema}]),
        tools_call=result(content=[], structuredContent={"n": 1}),
    )
    async with server.served() as url, open_box(url) as box:
        assert await box.call("harbour.tide", "{}") == Result(text='{"n":1}')


async def test_a_cancellation_goes_on_without_what_failed_beside_it() -> None:
    """A nursery's group of both would let the failure out of the cancelled scope, where nobody expects it."""
    both = BaseExceptionGroup("tasks", [KeyboardInterrupt(), ExceptionGroup("one", [OSError("gone")])])
    with pytest.raises(BaseExceptionGroup) as caught:
        raise_ours(both, None)
    assert [type(error) for error in caught.value.exceptions] == [KeyboardInterrupt]
    with pytest.raises(McpFailed, match="connection"):
        raise_ours(ExceptionGroup("tasks", [OSError("gone")]), McpFailed("the connection is lost"))
