"""A relay between a client and a server on this machine that writes down what the client sends.

    recording_relay.py HOST PORT FILE

Prints the port that it listens on, then serves until it is killed. One JSON line in FILE for each request head
(``{"request", "websocket"}``), for each WebSocket message of the client (``{"frame", "input"}``: its type and the types
of its input items) and for each fault (``{"note"}``). It drops ``Sec-WebSocket-Extensions`` from upgrades, so that
messages are not compressed. Needs nothing but Python.
"""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from typing import Any, TextIO

PIECE = 65536
OPCODES_OF_TEXT = (0, 1)


def main() -> None:
    """Listen on a free port and relay every connection in threads of its own."""
    host, port, file = sys.argv[1:]
    with open(file, "a", buffering=1, encoding="utf-8") as record, socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            client, _ = listener.accept()
            threading.Thread(target=relay, args=(client, (host, int(port)), record), daemon=True).start()


def relay(client: socket.socket, address: tuple[str, int], record: TextIO) -> None:
    """Join a client with the server until either leaves."""
    try:
        server = socket.create_connection(address)
    except OSError as error:
        write(record, note=f"the server cannot be reached: {error}")
        client.close()
        return
    with contextlib.suppress(EOFError, OSError):
        is_upgrade = pass_head(client, server, record)
        threading.Thread(target=pump, args=(server, client), daemon=True).start()
        if is_upgrade:
            pass_messages(client, server, record)
        else:
            pump(client, server)
    hang_up(client, server)


def pass_head(client: socket.socket, server: socket.socket, record: TextIO) -> bool:
    """Pass on the request head; true if it asks for WebSocket."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += read(client, 1)
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"sec-websocket-extensions:")]
    is_upgrade = any(line.lower().startswith(b"upgrade: websocket") for line in lines)
    write(record, request=lines[0].decode("latin1"), websocket=is_upgrade)
    server.sendall(b"\r\n".join(lines))
    return is_upgrade


def pass_messages(client: socket.socket, server: socket.socket, record: TextIO) -> None:
    """Pass on the client's frames as they are, and write down each whole text message (RFC 6455, section 5.2)."""
    text = b""
    while True:
        head = read(client, 2)
        length = head[1] & 127
        if length > 125:
            extended = read(client, 2 if length == 126 else 8)
            head, length = head + extended, int.from_bytes(extended, "big")
        mask, body = read(client, 4), read(client, length)
        server.sendall(head + mask + body)
        if head[0] & 15 in OPCODES_OF_TEXT:
            text += bytes(byte ^ mask[place & 3] for place, byte in enumerate(body))
            if head[0] & 128:
                write_message(record, json.loads(text))
                text = b""


def write_message(record: TextIO, message: dict[str, Any]) -> None:
    """Note a message's type and the types of its input items."""
    write(record, frame=message.get("type"), input=[str(item.get("type")) for item in message.get("input", [])])


def write(record: TextIO, **facts: Any) -> None:
    """Write one line; line buffering and the short length keep lines of different threads whole."""
    record.write(json.dumps(facts) + "\n")


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Pass on bytes until either side leaves."""
    with contextlib.suppress(OSError):
        while data := source.recv(PIECE):
            sink.sendall(data)
    hang_up(source, sink)


def read(source: socket.socket, size: int) -> bytes:
    """Exactly so many bytes. Raises ``EOFError`` if the peer leaves before."""
    data = b""
    while len(data) < size:
        piece = source.recv(size - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data


def hang_up(*sockets: socket.socket) -> None:
    """End both directions; a socket that has ended already is fine."""
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()
