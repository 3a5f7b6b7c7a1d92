"""What tests with real clients share beyond their kits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from respserver.config import Mode
from respserver.embed import RunningServer
from tests.clients.node_tools import installed
from tests.clients.openai_kit import tide_server


@pytest.fixture(scope="session")
def node_sdk() -> Path:
    """The folder that OpenAI's SDK for Node is installed in, with the packages that it leaves to its users: ``ws`` for
    WebSockets and ``zod`` for parsed answers."""
    return installed("openai-node", openai="7.59.0", ws="8.23.0", zod="4.6.7")


@pytest.fixture(scope="module")
def shipped() -> Iterator[RunningServer]:
    """A server in shipped mode that knows the tides."""
    with tide_server() as running:
        yield running


@pytest.fixture(scope="module")
def prototype() -> Iterator[RunningServer]:
    """The same in prototype mode."""
    with tide_server(Mode.PROTOTYPE) as running:
        yield running
