"""OpenAI's Python SDK with tools that the server runs itself: streamed, accumulated, approved, over both transports."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respserver.config import Config, Mode
from respserver.embed import RunningServer, start_server
from respserver.engines.sim import Script, call
from tests.clients.openai_kit import KEY, sdk

pytestmark = pytest.mark.client

TOOLS: list[Any] = [{"type": "web_search"}]
SAID = [call("web_search", query="tide"), "So I look."], "High at noon [1]."


@pytest.fixture(scope="module", params=list(Mode))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    folder: Path = tmp_path_factory.mktemp("library")
    (folder / "tides.md").write_text("# Tides\n\nThe tide is high at noon.")
    config = Config(port=0, mode=request.param, api_key=(KEY,), search_folder=str(folder))
    with start_server(config, script=Script.of(*SAID, on_end="repeat")) as running:
        yield running


def check(response: Any) -> None:
    searched, preamble, message = response.output
    assert searched.type == "web_search_call"
    assert (searched.action.type, searched.action.query, searched.status) == ("search", "tide", "completed")
    assert preamble.content[0].annotations == []
    (cited,) = message.content[0].annotations
    assert (cited.type, cited.url, cited.title) == ("url_citation", "file:///tides.md", "Tides")
    assert message.content[0].text[cited.start_index : cited.end_index] == "[1]"


def test_a_plain_create_searches(server) -> None:
    with sdk(server) as client:
        response = client.responses.create(model="sim", input="When?", tools=TOOLS)
        check(response)
        again = client.responses.create(
            model="sim", input=[*response.output, {"role": "user", "content": "Sure?"}], tools=TOOLS
        )
        assert again.status == "completed"


def test_a_stream_adds_up_though_items_overlap(server) -> None:
    with sdk(server) as client, client.responses.stream(model="sim", input="When?", tools=TOOLS) as stream:
        kinds = [event.type for event in stream]
        check(stream.get_final_response())
    assert kinds.index("response.web_search_call.completed") > kinds.index("response.output_text.delta")
    assert "response.output_text.annotation.added" in kinds


def test_a_socket_adds_up_though_items_overlap(server) -> None:
    with sdk(server) as client, client.responses.connect() as connection:
        connection.response.create(model="sim", input="When?", tools=TOOLS)
        for event in connection:
            if event.type == "response.completed":
                check(event.response)
                return
    raise AssertionError("no terminal event")
