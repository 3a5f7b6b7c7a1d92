"""What tests with real clients share beyond their kits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.node_tools import installed


@pytest.fixture(scope="session")
def node_sdk() -> Path:
    """The folder that OpenAI's SDK for Node is installed in, with the packages that it leaves to its users: ``ws`` for
    WebSockets and ``zod`` for parsed answers."""
    return installed("openai-node", openai="7.59.0", ws="8.23.0", zod="4.6.7")
