"""The ledger's SQLite file: its table, its version, and how it is opened to write and to read. No trio here.

The version is in ``PRAGMA user_version``; each entry of ``_MIGRATIONS`` leads to the next one and is never changed once
it was released. ``PRAGMA application_id`` tells a ledger from any other SQLite file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec

from respserver.ledger.base import LedgerError, TurnRecord

APPLICATION_ID = 0x7265734C
"""``resL``."""

_MIGRATIONS = (
    (
        """
        CREATE TABLE turns (
            id INTEGER PRIMARY KEY,
            created_at REAL NOT NULL,
            kind TEXT NOT NULL,
            response_id TEXT NOT NULL,
            previous_response_id TEXT,
            connection_id TEXT NOT NULL,
            transport TEXT NOT NULL,
            tenant TEXT NOT NULL,
            model TEXT NOT NULL,
            status TEXT NOT NULL,
            error_code TEXT,
            verdict TEXT,
            input_tokens INTEGER NOT NULL,
            cached_tokens INTEGER NOT NULL,
            cache_write_tokens INTEGER NOT NULL,
            output_tokens INTEGER NOT NULL,
            reasoning_tokens INTEGER NOT NULL,
            pauses INTEGER NOT NULL,
            items_in INTEGER NOT NULL,
            items_out INTEGER NOT NULL,
            timings_ms TEXT NOT NULL
        )
        """,
        "CREATE INDEX turns_by_time ON turns (created_at)",
    ),
)
VERSION = len(_MIGRATIONS)

_COLUMNS = (
    "created_at", "kind", "response_id", "previous_response_id", "connection_id", "transport", "tenant", "model",
    "status", "error_code", "verdict", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
    "reasoning_tokens", "pauses", "items_in", "items_out", "timings_ms",
)  # fmt: skip
INSERT = f"INSERT INTO turns ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"

Row = tuple[str | int | float | None, ...]


def row_of(record: TurnRecord) -> Row:
    """The values of ``INSERT``. Any record makes a row that SQLite takes, so that none can stand in the others' way."""
    usage = record.usage
    return (
        record.created_at,
        record.kind,
        _storable(record.response_id),
        None if record.previous_response_id is None else _storable(record.previous_response_id),
        record.connection_id,
        record.transport,
        record.tenant,
        _storable(record.model),
        record.status,
        record.error_code,
        None if record.verdict is None else _storable(record.verdict),
        usage.input_tokens,
        usage.input_tokens_details.cached_tokens,
        usage.input_tokens_details.cache_write_tokens,
        usage.output_tokens,
        usage.output_tokens_details.reasoning_tokens,
        record.pauses,
        record.items_in,
        record.items_out,
        msgspec.json.encode(record.timings_ms).decode(),
    )


def open_for_writing(file: str, busy_seconds: float) -> sqlite3.Connection:
    """A connection to the file, which is made or brought to this version if need be. Raises ``LedgerError``.

    ``busy_seconds`` is how long a statement waits for another process's lock. The connection may be used from any
    thread, one at a time, and leaves transactions to its user.
    """

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(file, timeout=busy_seconds, isolation_level=None, check_same_thread=False)

    def prepare(connection: sqlite3.Connection) -> None:
        _check_is_ours(file, connection, may_be_empty=True)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")  # enough against kill -9; only a power cut can take rows
        _migrate(connection)

    return _open(file, connect, prepare)


def open_for_reading(file: str, busy_seconds: float) -> sqlite3.Connection:
    """A connection that changes no row and makes no file; servers may write meanwhile. Raises ``LedgerError``."""

    def connect() -> sqlite3.Connection:
        # Not mode=ro: that one leaves the files of the write-ahead log behind, because it may not tidy up.
        uri = f"{Path(file).absolute().as_uri()}?mode=rw"
        return sqlite3.connect(uri, uri=True, timeout=busy_seconds, isolation_level=None)

    def prepare(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA query_only = ON")
        _check_is_ours(file, connection, may_be_empty=False)

    return _open(file, connect, prepare)


def _open(
    file: str, connect: Callable[[], sqlite3.Connection], prepare: Callable[[sqlite3.Connection], None]
) -> sqlite3.Connection:
    try:
        connection = connect()
        try:
            prepare(connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise LedgerError(file, str(error)) from error
    return connection


def _check_is_ours(file: str, connection: sqlite3.Connection, *, may_be_empty: bool) -> None:
    tables = _number(connection, "SELECT count(*) FROM sqlite_master")
    if tables == 0 and may_be_empty:
        return
    if tables == 0 or _number(connection, "PRAGMA application_id") != APPLICATION_ID:
        raise LedgerError(file, "this SQLite file is not a ledger")
    version = _number(connection, "PRAGMA user_version")
    if version > VERSION:
        raise LedgerError(file, f"this ledger has version {version}, of a newer respserver; this one knows {VERSION}")


def _migrate(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")  # two servers may come to a new file at once
    for statements in _MIGRATIONS[_number(connection, "PRAGMA user_version") :]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute("COMMIT")


def _number(connection: sqlite3.Connection, query: str) -> int:
    with closing(connection.execute(query)) as cursor:
        return int(cursor.fetchone()[0])


def _storable(text: str) -> str:
    """Text that a client chose, without what UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
