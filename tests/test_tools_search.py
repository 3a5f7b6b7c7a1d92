"""Searching a folder of text files."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from msgspec import Raw

from respserver.config import Config
from respserver.errors import ConfigError, InvalidRequest
from respserver.settings import check_files
from respserver.tools import search as module
from respserver.tools.base import Source
from respserver.tools.search import FolderSearch, SearchHost, passages

QUERY = '{"query":"tide"}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "tides.md").write_text("Intro\n\n# Of tides #\n\nThe tide is high at noon.\n\n" + "x " * 900)
    (tmp_path / "moon.txt").write_text("The moon pulls the tide, and the tide follows: tide, tide.")
    (tmp_path / "žluť.TXT").write_text("žluťoučký kůň 🐎", encoding="utf-8")
    (tmp_path / "broken.txt").write_bytes(b"\xff\xfe half")
    (tmp_path / "picture.png").write_text("tide")
    (tmp_path / ".hidden.md").write_text("tide")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.txt").write_text("tide")
    return tmp_path


async def found(folder: Path, query: str, most: int = 5) -> Sequence[Source]:
    provider = FolderSearch(str(folder))
    try:
        return await provider.search(query, most)
    finally:
        await provider.aclose()
        await provider.aclose()


async def test_the_best_passages_of_the_best_files_are_found(folder: Path) -> None:
    results = await found(folder, "When is the TIDE?")
    assert {(one.url, one.title) for one in results} == {
        ("file:///deep/tides.md", "Of tides"),
        ("file:///moon.txt", "moon"),
    }
    text = next(one.text for one in results if one.title == "Of tides")
    assert "The tide is high at noon." in text
    assert "x x" not in text
    assert len(await found(folder, "tide", 1)) == 1


@pytest.mark.parametrize("query", ["", "?!", '"', "nowhere", "tide NOT moon AND (", "x" * 100_000, "a " * 10_000])
async def test_any_text_is_a_query(folder: Path, query: str) -> None:
    await found(folder, query)


async def test_accents_do_not_matter(folder: Path) -> None:
    assert [one.title for one in await found(folder, "zlutoucky")] == ["žluť"]


async def test_links_that_lead_out_are_not_read(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret.txt"
    outside.write_text("swordfish")
    (folder / "link.txt").symlink_to(outside)
    assert await found(folder, "swordfish") == []


async def test_a_link_in_a_circle_is_passed_over(folder: Path) -> None:
    (folder / "circle.txt").symlink_to("circle.txt")
    assert await found(folder, "tide")


async def test_a_name_that_is_not_utf_8_can_be_found_and_told(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a b#\xff.txt")).write_text("High tide.")
    (source,) = await found(tmp_path, "tide")
    assert (source.url, source.title) == ("file:///a%20b%23%FF.txt", "a b#\N{REPLACEMENT CHARACTER}")


async def test_what_is_read_has_bounds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_FILES", 1)
    assert len(await found(folder, "tide")) == 0  # broken.txt comes first
    monkeypatch.setattr(module, "MAX_FILES", 100)
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 10)
    assert len(await found(folder, "noon")) == 0


async def test_an_empty_folder_has_nothing(tmp_path: Path) -> None:
    assert await found(tmp_path, "tide") == []


async def test_a_search_that_takes_long_can_be_left_and_hurts_no_later_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go_on = threading.Event(), threading.Event()
    real = module._index

    def slow(folder: str) -> sqlite3.Connection:
        begun.set()
        assert may_go_on.wait(10)
        return real(folder)

    monkeypatch.setattr(module, "_index", slow)
    provider = FolderSearch(str(folder))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(provider.search, "tide", 3)
        await trio.to_thread.run_sync(begun.wait, 10)
        nursery.cancel_scope.cancel()
    may_go_on.set()
    with trio.fail_after(10):
        assert await provider.search("tide", 3)
        await provider.aclose()


def test_passages_are_whole_paragraphs() -> None:
    assert passages("a\n\n \n\nb") == ["a\n\nb"]
    assert passages("") == []
    long = "y" * 2_500
    assert [len(piece) for piece in passages(f"a\n\n{long}\n\nb")] == [1, 1000, 1000, 503]


class Shelf:
    def __init__(self) -> None:
        self.most = 0

    async def search(self, query: str, most: int) -> Sequence[Source]:
        self.most = most
        return ()

    async def aclose(self) -> None:
        self.most = -1


@pytest.mark.parametrize(
    ("definition", "most"),
    [
        ('{"type":"web_search"}', 5),
        ('{"type":"web_search","search_context_size":"low"}', 3),
        ('{"type":"web_search","search_context_size":"high","filters":{"allowed_domains":["a"]}}', 8),
        ('{"type":"web_search","search_context_size":null}', 5),
    ],
)
async def test_the_size_says_how_many_sources_are_wanted(definition: str, most: int) -> None:
    shelf = Shelf()
    host = SearchHost(shelf)
    host.check(Raw(definition.encode()), "tools[0]")
    toolbox = await host.open(Raw(definition.encode()), "tools[0]")
    assert (await toolbox.call("web_search", QUERY)).text == "Nothing was found."
    assert shelf.most == most
    await toolbox.aclose()
    await host.aclose()
    assert shelf.most == -1


def test_a_size_that_does_not_exist_is_named() -> None:
    with pytest.raises(InvalidRequest) as refused:
        SearchHost(Shelf()).check(Raw(b'{"type":"web_search","search_context_size":"huge"}'), "tools[3]")
    assert refused.value.param == "tools[3].search_context_size"


@pytest.mark.parametrize("arguments", ["", "{", "[]", "{}", '{"query":5}', '{"query":null}', "\udc80"])
async def test_arguments_that_say_no_query_fail(arguments: str) -> None:
    toolbox = await SearchHost(Shelf()).open(Raw(b'{"type":"web_search"}'), "tools[0]")
    assert (await toolbox.call("web_search", arguments)).error is not None


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    check_files(Config(search_folder=str(tmp_path)))
    with pytest.raises(ConfigError) as wrong:
        check_files(Config(search_folder=str(tmp_path / "none")))
    assert wrong.value.option == "search_folder"


async def test_a_server_with_a_folder_searches_it(serve, connect, folder: Path) -> None:
    wire = await connect(await serve(search_folder=str(folder)))
    response = await wire.completed(input="How high is the tide?", tools=[{"type": "web_search"}])
    assert [item["type"] for item in response["output"]] == ["web_search_call", "message"]
    text = response["output"][1]["content"][0]
    assert "[1]" in text["text"]
    assert {cited["url"] for cited in text["annotations"]} == {"file:///deep/tides.md", "file:///moon.txt"}
