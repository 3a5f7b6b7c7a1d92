"""``web_search``: the host of searches, what a provider of them is, and the one that is built in.

The built-in provider looks through a folder of text files, so that searching works without a network and always finds
the same. It reads the folder once, when something is first searched for.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import quote

import msgspec
import trio
from msgspec import Raw

from respserver.logger import get_logger
from respserver.schema.codec import decode
from respserver.schema.tools import SEARCH_NAME, search_query
from respserver.tools.base import HostedTool, Result, Source, Toolbox

if TYPE_CHECKING:
    import sqlite3

log = get_logger("respserver.tools")

ENDINGS = (".txt", ".md")
MAX_FILES = 10_000
MAX_FILE_BYTES = 1 << 20
MAX_BYTES = 64 << 20
"""What is indexed of a folder: so many files, so much of each, so much in all. The rest is left out, and logged."""
PASSAGE = 1_000
"""Characters of a passage, about: texts are found and quoted in such pieces."""
MAX_WORDS = 32
"""Words of a query that count."""
MOST = {"low": 3, "medium": 5, "high": 8}
"""Sources that a search finds, by ``search_context_size``."""
_WORD = re.compile(r"\w+")
_HEADING = re.compile(r"^#+ +(.+?) *#*$", re.MULTILINE)


class Provider(Protocol):
    """Something that can be searched."""

    async def search(self, query: str, most: int) -> Sequence[Source]:
        """The best sources for a query, the best first. An exception fails the call."""
        ...

    async def aclose(self) -> None:
        """Free what the provider holds."""
        ...


class _Definition(msgspec.Struct):
    search_context_size: Literal["low", "medium", "high"] | None = None


_definition = msgspec.json.Decoder(_Definition)


class SearchHost:
    """Serves ``web_search`` definitions with one provider."""

    kind = "web_search"

    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    def check(self, definition: Raw, param: str) -> None:
        """Raises an ``InvalidRequest`` for a size that does not exist. Places and domains are not looked at: they mean
        the web."""
        decode(_definition, definition, param)

    async def open(self, definition: Raw, param: str) -> Toolbox:
        """The search as a toolbox; nothing is asked yet."""
        await trio.lowlevel.checkpoint()
        size = decode(_definition, definition, param).search_context_size
        return SearchToolbox(self._provider, MOST[size or "medium"])

    async def aclose(self) -> None:
        """Free the provider."""
        await self._provider.aclose()


class SearchToolbox:
    """One tool, with one parameter. The model is told of it by the definition itself."""

    kind = "web_search"
    label = ""

    def __init__(self, provider: Provider, most: int) -> None:
        self.tools = [HostedTool(name=SEARCH_NAME)]
        self._provider = provider
        self._most = most

    async def call(self, name: str, arguments: str) -> Result:  # noqa: ARG002 - there is only one
        """Search for the query."""
        query = search_query(arguments)
        if query is None:
            return Result(error='The arguments must be a JSON object with a text "query".')
        try:
            found = await self._provider.search(query, self._most)
        except Exception:
            log.exception("search_failed")
            return Result(error="The search failed.")
        return Result(text="" if found else "Nothing was found.", sources=tuple(found))

    async def aclose(self) -> None:
        """Nothing is held."""


class FolderSearch:
    """Searches the text files (``.txt``, ``.md``) of a folder and the folders in it, with SQLite's full-text index.

    A source's address is ``file:///`` and the file's path below the folder: where that lies is the server's own
    business. Hidden files, and links that lead out of the folder, are not read.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._index: sqlite3.Connection | None = None
        self._line = trio.Lock()
        """Searches that wait hold no thread."""
        self._in_use = threading.Lock()
        """Threads that nobody waits for any more go on; the next one must not meet them."""

    async def search(self, query: str, most: int) -> Sequence[Source]:
        """The best passage of each of the best files. The wait can be cancelled at any time: the first search reads the
        folder, which takes seconds if that is large."""
        async with self._line:
            return await trio.to_thread.run_sync(self._search_alone, query, most, abandon_on_cancel=True)

    async def aclose(self) -> None:
        """Forget the index."""
        async with self._line:
            await trio.to_thread.run_sync(self._close, abandon_on_cancel=True)

    def _close(self) -> None:
        with self._in_use:
            if self._index is not None:
                self._index.close()
                self._index = None

    def _search_alone(self, query: str, most: int) -> list[Source]:
        with self._in_use:
            return self._search(query, most)

    def _search(self, query: str, most: int) -> list[Source]:
        if self._index is None:
            self._index = _index(self._folder)
        words = dict.fromkeys(word.lower() for word in _WORD.findall(query))
        if not words:
            return []
        asked = " OR ".join(f'"{word}"' for word in list(words)[:MAX_WORDS])
        rows = self._index.execute(
            "SELECT path, title, text FROM passages WHERE passages MATCH ?"
            " ORDER BY bm25(passages, 0, 4, 1), path, rowid",
            (asked,),
        )
        found: dict[str, Source] = {}
        for path, title, text in rows:
            if path not in found:
                found[path] = Source(url=f"file:///{path}", title=title, text=text)
                if len(found) == most:
                    break
        return list(found.values())


def _index(folder: str) -> sqlite3.Connection:
    import sqlite3  # not before something is searched for

    index = sqlite3.connect(":memory:", check_same_thread=False)
    index.execute("CREATE VIRTUAL TABLE passages USING fts5(path UNINDEXED, title, text, tokenize='unicode61')")
    files, size = 0, 0
    for path in _files(Path(folder)):
        if files == MAX_FILES or size >= MAX_BYTES:
            log.warning("search_folder_too_large", files=files, bytes=size)
            break
        data = _read(path)
        files, size = files + 1, size + len(data)
        text = data.decode("utf-8-sig", "replace")
        heading = _HEADING.search(text) if path.suffix.lower() == ".md" else None
        title = heading[1] if heading else os.fsencode(path.stem).decode("utf-8", "replace")
        name = quote(os.fsencode(path.relative_to(folder).as_posix()))  # which need not be UTF-8
        index.executemany("INSERT INTO passages VALUES (?, ?, ?)", [(name, title, part) for part in passages(text)])
    index.commit()
    log.info("search_folder_read", files=files, bytes=size)
    return index


def _files(folder: Path) -> Iterator[Path]:
    """The text files, in the order of their names."""
    root = folder.resolve()
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(place, name)
            is_text = path.suffix.lower() in ENDINGS and not name.startswith(".")
            if is_text and _is_file_below(path, root):
                yield path


def _is_file_below(path: Path, root: Path) -> bool:
    try:
        return path.resolve().is_relative_to(root) and path.is_file()
    except (OSError, RuntimeError):  # it may not be looked at, or is a link in a circle
        return False


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES)
    except OSError as error:
        log.warning("search_file_unread", problem=error.strerror)
        return b""


def passages(text: str) -> list[str]:
    """A text in pieces of at most ``PASSAGE`` characters: whole paragraphs, unless one is longer than that."""
    pieces: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        paragraph = paragraph.strip()
        if not paragraph:
            continue
        if pieces and len(pieces[-1]) + len(paragraph) + 2 <= PASSAGE:
            pieces[-1] += f"\n\n{paragraph}"
        else:
            pieces += [paragraph[start : start + PASSAGE] for start in range(0, len(paragraph), PASSAGE)]
    return pieces
