"""costs.py LOOP-SERVERS: the cost of watching. LOOP-SERVERS is the folder with loop-server, loop-server-watched and stall-monitor.

Idle: the CPU time and the wake-ups of the command that watches 16 idle loops, of the watched process, and of a monitor inside it.
Saturated: requests a second and the 99th percentile of the latency of servers under wrk, watched or not, one after the other: PAIRS times each (10), for SECONDS (5). Prints the median
of the differences from the adjacent unwatched run, and the noise: half of the distance between the quartiles of these differences, and of the unwatched runs among themselves.
perf and py-spy sample the same servers 20 times a second. Tools that this machine lacks are left out.
Exits with 1 if watching idle loops takes more than 0.2 % of a CPU, a monitor inside wakes an idle process, or a server's loss is larger than twice the noise.
"""
import glob
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time


BIN = sys.argv[1]
PAIRS, SECONDS = int(os.environ.get("PAIRS", "10")), int(os.environ.get("SECONDS", "5"))
directory = tempfile.mkdtemp(prefix="watch-costs-")
failed = False


def start(*command):
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return process, int(process.stdout.readline().split()[1])


def stop(process):
    process.kill()
    process.wait()


def used(pid):
    """For each thread: its CPU time in ms, and how often it has begun to wait."""
    threads = {}
    for task in glob.glob(f"/proc/{pid}/task/*"):
        try:
            with open(f"{task}/schedstat") as file:
                milliseconds = int(file.read().split()[0]) / 1e6
            with open(f"{task}/status") as file:
                threads[task] = milliseconds, int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", file.read(), re.M)[1])
        except OSError:
            pass
    return threads


def used_in(pid, seconds):
    """Percent of a CPU, and wake-ups a second, of the threads that live throughout."""
    before = used(pid)
    time.sleep(seconds)
    after = used(pid)
    both = before.keys() & after.keys()
    return [sum(after[task][index] - before[task][index] for task in both) / seconds * factor for index, factor in ((0, 0.1), (1, 1))]


def watch(pid):
    command = [f"{BIN}/stall-monitor", "watch", str(pid), "--reports", f"{directory}/watch"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    # By now it knows the loops, and looks for new threads once a second.
    time.sleep(4)
    return process


def idle(seconds=20):
    global failed
    print(f"16 idle loops, {seconds} s each, load {os.getloadavg()[0]:.1f}")
    server, _ = start(f"{BIN}/loop-server", "idle")
    alone = used_in(server.pid, seconds)
    watcher = watch(server.pid)
    share, wakes = used_in(watcher.pid, seconds)
    target = used_in(server.pid, seconds)
    watcher.send_signal(signal.SIGINT)
    watcher.wait()
    stop(server)
    print(f"  stall-monitor watch      {share:.3f} % of a processor, {wakes:.1f} wake-ups a second (goal 0.2 %)")
    print(f"  the process it watches   {target[0]:.3f} %, {target[1]:.1f} wake-ups a second (unwatched {alone[0]:.3f} %, {alone[1]:.1f})")
    server, _ = start(f"{BIN}/loop-server-watched", "idle", f"{directory}/inside")
    time.sleep(4)
    inside = used_in(server.pid, seconds)
    stop(server)
    print(f"  with the monitor inside  {inside[0]:.3f} %, {inside[1]:.1f} wake-ups a second (goal 0)")
    failed |= share > 0.2 or inside[1] > alone[1]


def wrk(port):
    """Requests a second, and the 99th percentile of the latency in ms."""
    text = subprocess.run(
        ["wrk", "-t1", "-c64", f"-d{SECONDS}s", "--latency", f"http://127.0.0.1:{port}/"], capture_output=True, text=True, check=True).stdout
    latency, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", text).groups()
    return float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]), float(latency) * {"us": 0.001, "ms": 1, "s": 1000}[unit]


def tool(*command):
    """What starts a tool that samples a process."""
    def begin(pid):
        process = subprocess.Popen(
            [word.replace("PID", str(pid)) for word in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=directory)
        time.sleep(2)
        return process
    return begin


PERF = tool("perf", "record", "-F", "20", "-g", "-o", f"{directory}/perf.data", "-p", "PID")
PY_SPY = tool("py-spy", "record", "-r", "20", "-d", "3600", "-o", f"{directory}/py-spy.svg", "-p", "PID")


def has_perf():
    test = ["perf", "record", "-F", "20", "-g", "-o", f"{directory}/perf.data", "true"]
    return bool(shutil.which("perf")) and subprocess.run(test, capture_output=True).returncode == 0


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else [values[0]] * 3


def saturated(name, unwatched, ways):
    """`ways`: by name, the program and what watches it from outside. Each round runs all of them, in a different order."""
    runs = {way: [] for way in ways}
    print(f"\n{name} under wrk, {PAIRS} times {SECONDS} s each, load {os.getloadavg()[0]:.1f}")
    for number in range(PAIRS):
        order = list(ways)
        order = order[number % len(order):] + order[:number % len(order)]
        for way in order:
            command, begin = ways[way]
            server, port = start(*command)
            watcher = begin(server.pid) if begin else None
            runs[way].append(wrk(port))
            if watcher:
                watcher.send_signal(signal.SIGINT)
                watcher.wait()
            stop(server)
    for index, (figure, unit) in enumerate((("requests/s", ""), ("p99", " ms"))):
        plain = [run[index] for run in runs[unwatched]]
        low, middle, high = quartiles(plain)
        noise = (high - low) / 2 / middle * 100
        print(f"  {figure:10} {unwatched:22} {middle:10.1f}{unit:3}                 noise ±{noise:.1f} %")
        for way in ways:
            if way != unwatched:
                judge(figure, unit, way, [run[index] for run in runs[way]], plain, noise, is_loss_negative=index == 0)


def judge(figure, unit, way, watched, plain, noise, is_loss_negative):
    global failed
    changes = [(after / before - 1) * 100 for before, after in zip(plain, watched)]
    low, middle, high = quartiles(changes)
    own = (high - low) / 2
    loss = -middle if is_loss_negative else middle
    # The other tools' losses are only printed.
    is_ours = way in ("monitor inside", "stall-monitor watch")
    is_bad = is_ours and loss > 2 * max(noise, own)
    failed |= is_bad
    print(f"  {figure:10} {way:22} {statistics.median(watched):10.1f}{unit:3} {middle:+6.1f} %       noise ±{own:.1f} %" + (" TOO MUCH" if is_bad else ""))


ASYNCIO = """
import asyncio
async def serve(reader, writer):
    try:
        while True:
            request = await reader.readuntil(b"\\r\\n\\r\\n")
            writer.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nok")
    except Exception:
        writer.close()
async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print("READY", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""

try:
    idle()
    plain = (f"{BIN}/loop-server", "nio")
    ways = {
        "unwatched": (plain, None), "monitor inside": ((f"{BIN}/loop-server-watched", "nio", f"{directory}/saturated"), None),
        "stall-monitor watch": (plain, watch),
    }
    perf = {"perf record, 20 Hz": (plain, PERF)} if has_perf() else {}
    saturated("SwiftNIO", "unwatched", ways | perf)
    python = (sys.executable, "-c", ASYNCIO)
    ways = {"unwatched": (python, None), "stall-monitor watch": (python, watch)}
    ways |= {"perf record, 20 Hz": (python, PERF)} if perf else {}
    ways |= {"py-spy, 20 Hz": (python, PY_SPY)} if shutil.which("py-spy") else {}
    saturated("asyncio", "unwatched", ways)
    print("\n" + ("NOT within the goals" if failed else "Within the goals"))
finally:
    shutil.rmtree(directory, ignore_errors=True)
sys.exit(1 if failed else 0)
