"""The ledger in a SQLite file: one transaction for each batch, in a worker thread, on a connection of its own.

WAL and ``synchronous = NORMAL``: a batch is there whole or not at all after ``kill -9``, and readers never wait.
"""

from __future__ import annotations

import sqlite3
from functools import partial

import trio

from respserver.errors import ConfigError
from respserver.ledger.base import LedgerError, TurnRecord
from respserver.ledger.table import INSERT, open_for_writing, row_of

BUSY_SECONDS = 1.0
"""How long a transaction waits for another process's. A thread cannot be cancelled: this also bounds a shutdown."""


class SqliteLedger:
    """Fulfils ``ledger.base.Ledger`` in ``file``, which is made if it does not exist.

    Several servers may write to one file. After a failure the connection is opened anew, so that a file system that
    comes back is found. Raises ``ConfigError`` if the file cannot be a ledger.
    """

    def __init__(self, file: str, *, busy_seconds: float = BUSY_SECONDS) -> None:
        self._file = file
        self._busy_seconds = busy_seconds
        self._connection: sqlite3.Connection | None = None
        self._one_thread = trio.CapacityLimiter(1)
        try:
            open_for_writing(file, busy_seconds).close()
        except LedgerError as error:
            raise ConfigError("ledger", f"cannot use {file}: {error.problem}") from error

    async def write(self, records: list[TurnRecord]) -> None:
        """Add the rows in one transaction. Raises ``LedgerError`` (disk full, locked, gone) with nothing written."""
        # Not abandoned when cancelled: either the thread never began, or its outcome is known here.
        await trio.to_thread.run_sync(partial(self._write, records), limiter=self._one_thread)

    async def aclose(self) -> None:
        """Close the file, which moves the write-ahead log into it. Safe to call twice."""
        await trio.to_thread.run_sync(self._drop_connection, limiter=self._one_thread)

    def _write(self, records: list[TurnRecord]) -> None:
        try:
            if self._connection is None:
                self._connection = open_for_writing(self._file, self._busy_seconds)
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(INSERT, map(row_of, records))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._drop_connection()
            raise LedgerError(self._file, str(error)) from error
        except BaseException:
            self._drop_connection()
            raise

    def _drop_connection(self) -> None:
        """Close the connection; a transaction that is open is rolled back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
