"""An asyncio server that is not prepared for being watched. It sends requests to itself, and stalls its loop in three ways."""

import asyncio
import time

STALL = 0.6


def compute():
    end = time.monotonic() + STALL
    while time.monotonic() < end:
        sum(i * i for i in range(1000))


def sleep():
    time.sleep(STALL)


def read_file_forever():
    end = time.monotonic() + STALL
    while time.monotonic() < end:
        with open("/proc/self/status") as file:
            file.read()


async def serve(reader, writer):
    await reader.readline()
    writer.write(b"ok\n")
    await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def requests(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"hello\n")
            await reader.readline()
            writer.close()
            await asyncio.sleep(0.01)

    # Requests before, between and after the stalls: they do not count as stalls.
    await requests(1.5)
    for stall in (compute, sleep, read_file_forever):
        stall()
        await requests(1)


asyncio.run(main())
