"""An asyncio loop that stalls by orders on standard input, like `sample-target loop`: NAME MS, answered by DID NAME BEGIN END."""
import asyncio
import os
import subprocess
import sys
import threading
import time


def stall(name, ms):
    until = time.monotonic_ns() + ms * 1_000_000
    if name == "compute":
        while time.monotonic_ns() < until:
            sum(range(200))
    elif name == "sleep":
        time.sleep(ms / 1000)
    elif name == "read":
        output, entrance = os.pipe()
        threading.Timer(ms / 1000, lambda: os.write(entrance, b"x")).start()
        os.read(output, 1)
    elif name == "lock":
        lock = threading.Lock()
        lock.acquire()
        threading.Timer(ms / 1000, lock.release).start()
        lock.acquire()
    elif name == "short":
        while time.monotonic_ns() < until:
            time.sleep(0.005)
    elif name == "calls":
        file = os.open("/proc/self/cmdline", os.O_RDONLY)
        while time.monotonic_ns() < until:
            os.pread(file, 1, 0)
        os.close(file)
    elif name == "child":
        subprocess.run(["sleep", str(ms / 1000)])


def one():
    until = time.monotonic_ns() + 1_000_000
    while time.monotonic_ns() < until:
        pass


def obey(loop, name, ms):
    begin = time.monotonic_ns()
    until = begin + ms * 1_000_000

    def did():
        print("DID", name, begin, time.monotonic_ns(), flush=True)

    def turns():
        one()
        loop.call_later(0.00001, turns) if time.monotonic_ns() < until else did()

    def spin():
        loop.call_soon(spin) if time.monotonic_ns() < until else did()

    if name == "turns":
        turns()
    elif name == "spin":
        spin()
    elif name == "turn":
        for _ in range(ms):
            loop.call_soon(one)
        loop.call_soon(did)
    else:
        stall(name, ms)
        did()


def read(loop):
    line = sys.stdin.readline().split()
    if not line:
        os._exit(0)
    obey(loop, line[0], int(line[1]))


async def main():
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, read, loop)
    print("READY", flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
