"""Carries the connections of a program out of its container: from a port of its loopback to a mounted socket.

Its text is run by a Python of the container (3.7 or newer), so it imports the standard library only.
"""

import asyncio
import sys


async def pour(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Pass on all bytes, and the end."""
    try:
        while True:
            data = await source.read(1 << 16)
            if not data:
                break
            target.write(data)
            await target.drain()
        target.write_eof()
    except OSError:
        target.close()


async def carry_connection(near: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
    """Carry one connection until both sides have ended."""
    try:
        far, there = await asyncio.open_unix_connection(sys.argv[1])
    except OSError:
        back.close()
        return
    await asyncio.gather(pour(near, there), pour(far, back))
    there.close()
    back.close()


async def main() -> None:
    """Listen at the port, say so, and carry connections to the socket."""
    server = await asyncio.start_server(carry_connection, "127.0.0.1", int(sys.argv[2]), backlog=512)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
