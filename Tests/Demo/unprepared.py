"""An asyncio server that is not prepared for being watched. It sends requests to itself, and stalls its loop in three ways."""

import asyncio
import os
import sys
import threading
import time

STALL = 0.6
if hasattr(sys, "set_int_max_str_digits"):
    sys.set_int_max_str_digits(0)


def cost_of(digits):
    start = time.process_time()
    int("7" * digits)
    return time.process_time() - start


# The time that it takes is quadratic in the digits.
DIGITS = "7" * int(40_000 * (STALL / 1.5 / max(1e-6, min(cost_of(40_000) for _ in range(5)))) ** 0.5)


# Each of the three is a single call of a function of the interpreter, and so a fault with one name. Python code that computes is
# in the interpreter's loop, each time somewhere else.
def read_number():
    int(DIGITS)


def sleep():
    time.sleep(STALL)


def read_pipe():
    ends = os.pipe()
    threading.Timer(STALL, os.write, (ends[1], b"ok")).start()
    os.read(ends[0], 2)


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
    for stall in (read_number, sleep, read_pipe):
        stall()
        await requests(1)


asyncio.run(main())
