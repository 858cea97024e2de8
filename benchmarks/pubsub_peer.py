"""The bare Python broadcast: `websockets` on uvloop, every message of anybody to everybody else."""

from __future__ import annotations

import asyncio
import sys

import uvloop
from websockets.asyncio.server import ServerConnection, broadcast, serve

subscribers: set[ServerConnection] = set()


async def handle(connection: ServerConnection) -> None:
    """Subscribe who asks `/sub`; broadcast what others send."""
    if connection.request is not None and connection.request.path == "/sub":
        subscribers.add(connection)
        await connection.wait_closed()
        subscribers.discard(connection)
        return
    async for message in connection:
        broadcast(subscribers, message)


async def main(port: int) -> None:
    """Serve until killed."""
    served = serve(handle, "127.0.0.1", port, backlog=2_048, compression=None, ping_interval=None)
    async with served:
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
