"""The floor of a fan-out: a server that does nothing but `send` on each subscriber's socket.

It has no loop beyond a selector for whoever publishes, no queue, no write buffer, and no
subscriber's own state: what comes is framed once, and goes out by one system call a subscriber.
Nothing in Python that calls the kernel for each subscriber needs less.
"""

from __future__ import annotations

import base64
import hashlib
import selectors
import socket
import sys

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def accept(listener: socket.socket) -> tuple[socket.socket, bool]:
    """A WebSocket after its handshake, and whether it subscribes."""
    sock, _ = listener.accept()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = b""
    while b"\r\n\r\n" not in head:
        piece = sock.recv(4_096)
        if not piece:  # who only looks whether anybody listens
            return sock, False
        head += piece
    key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
    accepted = base64.b64encode(hashlib.sha1(key + GUID, usedforsecurity=False).digest())
    sock.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accepted + b"\r\n\r\n"
    )
    return sock, head.startswith(b"GET /sub ")


def frames_of(data: bytes) -> tuple[bytes, bytes]:
    """What a publisher's frames are to subscribers, and what is not whole yet.

    They are shorter than 126 bytes, and their masks are zeros.
    """
    out = b""
    while len(data) >= 2 and len(data) >= 6 + (data[1] & 0x7F):
        end = 6 + (data[1] & 0x7F)
        out += bytes([data[0], end - 6]) + data[6:end]
        data = data[end:]
    return out, data


def main(port: int) -> None:
    """Serve until killed."""
    listener = socket.create_server(("127.0.0.1", port), backlog=2_048)
    selector = selectors.EpollSelector()
    selector.register(listener, selectors.EVENT_READ)
    subscribers: list[socket.socket] = []
    parts: dict[socket.socket, bytes] = {}
    while True:
        for key, _ in selector.select():
            if key.fileobj is listener:
                sock, subscribes = accept(listener)
                if subscribes:
                    subscribers.append(sock)
                else:
                    selector.register(sock, selectors.EVENT_READ)
                continue
            publisher = key.fileobj
            assert isinstance(publisher, socket.socket)
            data = publisher.recv(1 << 16)
            if not data:
                selector.unregister(publisher)
                publisher.close()
                continue
            frames, parts[publisher] = frames_of(parts.get(publisher, b"") + data)
            for sock in subscribers:
                sock.send(frames)


if __name__ == "__main__":
    main(int(sys.argv[1]))
