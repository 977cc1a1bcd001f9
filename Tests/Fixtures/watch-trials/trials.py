"""trials.py COMMAND SAMPLE-TARGET [REPEATS]: plays stalls to programs that nobody prepared, and compares what `stall-monitor watch` says with
what was true.

Prints a confusion matrix for each program, and how far the told lengths are from the true ones. Leaves with 1 if a stall of 300 ms was not told though
the watcher was in time, one was told of what is none, or a kind was wrong.
"""
import collections
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

COMMAND, TARGET = sys.argv[1], sys.argv[2]
REPEATS = int(sys.argv[3]) if len(sys.argv) > 3 else 2
HERE = os.path.dirname(os.path.abspath(__file__))

# What is asked for, and the kinds that are right. A turn of many callbacks in an interpreter is one callout to who watches its loop.
COMMON = [
    ("compute 600", {"blocked"}), ("compute 330", {"blocked"}), ("compute 150", {"none"}), ("sleep 600", {"blocked"}),
    ("sleep 330", {"blocked"}), ("sleep 150", {"none"}), ("short 600", {"blocked"}), ("calls 600", {"blocked"}),
    ("turns 2000", {"none"}), ("spin 2000", {"none"}), ("STOP 800", {"none"}), ("IDLE 2000", {"none"}),
]
PROGRAMS = {
    "C": ([TARGET, "loop"], COMMON + [
        ("call read_pipe 600", {"blocked"}), ("call write_pipe 600", {"blocked"}), ("call sem_wait 600", {"blocked"}),
        ("call flock 600", {"blocked"}), ("call waitpid 600", {"blocked"}), ("call poll 600", {"blocked"}),
        ("nested 600", {"blocked"}), ("poll0 600", {"blocked"}), ("made 600", {"blocked"}), ("turn 600", {"congested"}),
    ]),
    "asyncio": (["python3", f"{HERE}/server.py"], COMMON + [
        ("read 600", {"blocked"}), ("lock 600", {"blocked"}), ("child 600", {"blocked"}), ("turn 600", {"congested", "blocked"}),
    ]),
    "node": (["node", f"{HERE}/server.js"], COMMON + [
        ("child 600", {"blocked"}), ("turn 600", {"congested", "blocked"}),
    ]),
}


def play(server, order):
    """Returns the true length in ms, or None for what has none."""
    name, ms = order.rsplit(" ", 1)
    if name == "STOP":
        os.kill(server.pid, signal.SIGSTOP)
        time.sleep(int(ms) / 1000)
        os.kill(server.pid, signal.SIGCONT)
    elif name == "IDLE":
        time.sleep(int(ms) / 1000)
    else:
        server.stdin.write(order + "\n")
        server.stdin.flush()
        words = server.stdout.readline().split()
        return (int(words[3]) - int(words[2])) / 1e6
    return None


def trial(server, order):
    """One stall under a watcher of its own: the second of a kind would be counted only. Returns the reports at their ends, and the truth."""
    directory = tempfile.mkdtemp(prefix="watch-trials-")
    watch = subprocess.Popen(
        [COMMAND, "watch", str(server.pid), "--reports", directory, "--format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = threading.Event()

    def notes():
        for line in watch.stderr:
            if "found a loop" in line:
                found.set()
    threading.Thread(target=notes, daemon=True).start()
    # A loop that rests for good is not seen there twice before it turns: node's, asyncio's and C's all do here.
    if not found.wait(15):
        print("    no loop found", flush=True)
    time.sleep(0.1)
    truth = play(server, order)
    time.sleep(0.3)
    watch.send_signal(signal.SIGINT)
    reports = {}
    for line in watch.stdout:
        report = json.loads(line)
        reports[report["id"]] = report
    watch.wait()
    late = 0
    for path in glob.glob(f"{directory}/run-*.json"):
        with open(path) as record:
            late = json.load(record)["late_ticks"]
    shutil.rmtree(directory, ignore_errors=True)
    return list(reports.values()), truth, late


def run(name, command, scenarios):
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    server.stdout.readline()
    matrix, errors, wrong, missed = collections.Counter(), [], 0, 0
    for order, right in scenarios:
        for _ in range(REPEATS):
            reports, truth, late = trial(server, order)
            said = reports[0]["kind"] if reports else "none"
            is_right = said in right and len(reports) <= 1
            # Time in which the watcher itself had no processor proves nothing, and counts towards no stall.
            is_missed = said == "none" and not is_right and late > 1
            wrong += not is_right and not is_missed
            missed += is_missed
            cause = reports[0]["cause"]["verdict"] if reports else ""
            matrix[(order, "/".join(sorted(right)), said, cause, len(reports), "" if is_right else f"missed, {late} looks late" if is_missed else "WRONG")] += 1
            if reports and truth is not None and is_right:
                told = (reports[0]["duration_ns"] + reports[0].get("excluded_ns", 0)) / 1e6
                errors.append(told - truth)
    server.kill()
    server.wait()
    try:
        os.unlink(f"/tmp/perf-{server.pid}.map")
    except OSError:
        pass
    print(f"{name}: {' '.join(command)[:100]}")
    print(f"  {'scenario':20} {'right':18} {'said':10} {'cause':10} reports times")
    orders = [order for order, _ in scenarios]
    for (order, right, said, cause, count, note), times in sorted(matrix.items(), key=lambda row: orders.index(row[0][0])):
        print(f"  {order:20} {right:18} {said:10} {cause:10} {count:7} {times:5} {note}")
    if errors:
        errors.sort()
        print(f"  length told minus true: min {errors[0]:.1f} median {errors[len(errors) // 2]:.1f} max {errors[-1]:.1f} ms ({len(errors)})")
    print(f"  {wrong} wrong and {missed} missed while the watcher was late, of {sum(matrix.values())}", flush=True)
    return wrong


wanted = os.environ.get("ONLY", "").split(",") if os.environ.get("ONLY") else PROGRAMS
failures = 0
for name, (command, scenarios) in PROGRAMS.items():
    if name not in wanted:
        continue
    if not shutil.which(command[0]):
        print(f"{name}: not on this machine")
        continue
    failures += run(name, command, scenarios)
sys.exit(1 if failures else 0)
