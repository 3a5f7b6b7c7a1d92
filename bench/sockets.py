"""A loopback connection whose far end only reads, in a process of its own: what is written here is not held up, and
the reader's work is not ours."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator

import trio

BUFFER_BYTES = 1 << 22
"""Of either end, as far as the system grants it: what is written between two pauses fits."""
READ_ON = """
import sys
print("ready", flush=True)
try:
    while sys.stdin.buffer.raw.read(1 << 16): pass
except ConnectionResetError: pass
"""


@contextlib.contextmanager
def read_stream(greeting: bytes = b"") -> Iterator[trio.SocketStream]:
    """Our end of a connection whose other end has sent ``greeting`` and reads from then on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with theirs:
        theirs.sendall(greeting)
        reader = subprocess.Popen([sys.executable, "-SEc", READ_ON], stdin=theirs.fileno(), stdout=subprocess.PIPE)
    with reader:
        assert reader.stdout is not None  # it is a pipe
        reader.stdout.readline()
        with ours:
            yield _roomy(trio.SocketStream(trio.socket.from_stdlib_socket(ours)))


def _roomy(stream: trio.SocketStream) -> trio.SocketStream:
    """The stream with room for a burst: Trio lets only 16 KiB wait unsent, so as to feel a slow reader soon."""
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):
        stream.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, BUFFER_BYTES)
    return stream
