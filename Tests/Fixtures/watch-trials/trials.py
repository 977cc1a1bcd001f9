"""trials.py COMMAND SAMPLE-TARGET [REPEATS]: plays stalls to programs that nobody prepared, and compares what `stall-monitor watch` says with
what was true.

ONLY=redis,nginx takes some of the programs; LOAD_SECONDS is how long each server is put under load. Prints a confusion matrix for each program, and
how far the told beginnings and ends are from the true ones. Leaves with 1 if a stall of 300 ms was not told though the watcher was in time, one was
told of what is none, a kind was wrong, or a stall was not told as over.
"""
import collections
import datetime
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

import servers

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
    "C": (lambda: servers.Told([TARGET, "loop"]), COMMON + [
        ("call read_pipe 600", {"blocked"}), ("call write_pipe 600", {"blocked"}), ("call sem_wait 600", {"blocked"}),
        ("call flock 600", {"blocked"}), ("call waitpid 600", {"blocked"}), ("call poll 600", {"blocked"}),
        ("nested 600", {"blocked"}), ("poll0 600", {"blocked"}), ("made 600", {"blocked"}), ("turn 600", {"congested"}),
        ("exec 600", {"none"}),
    ]),
    # The first loop may be told as stalled until the next one is known, but not beyond. The next one waits at the same place of the code, and takes the
    # shots of the first one's breakpoint: then only the callout's return proves anything.
    "C-moved": (lambda: servers.Told([TARGET, "loop"]), [
        ("move 6500", {"blocked", "none"}), ("compute 600", {"blocked"}), ("sleep 600", {"blocked"}), ("IDLE 2000", {"none"}),
    ]),
    "asyncio": (lambda: servers.Told(["python3", f"{HERE}/server.py"]), COMMON + [
        ("read 600", {"blocked"}), ("lock 600", {"blocked"}), ("child 600", {"blocked"}), ("turn 600", {"congested", "blocked"}),
    ]),
    "node": (lambda: servers.Told(["node", f"{HERE}/server.js"]), COMMON + [
        ("child 600", {"blocked"}), ("turn 600", {"congested", "blocked"}),
    ]),
    "redis": (servers.Redis, servers.Redis.scenarios),
    "nginx": (servers.Nginx, servers.Nginx.scenarios),
    "postgres": (servers.Postgres, servers.Postgres.scenarios),
    "python-client": (lambda: servers.Client(["python3", "-c", servers.PYTHON_CLIENT]), servers.Client.scenarios),
    "bash-client": (lambda: servers.Client(["bash", "-c", servers.SHELL_CLIENT]), servers.Client.scenarios),
}
NEEDS = {"asyncio": ["python3"], "node": ["node"], "python-client": ["python3"], "bash-client": ["bash"]}


def trial(server, order):
    """One stall under a watcher of its own: the second of a kind would be counted only. Returns the reports at their ends, and the truth."""
    directory = tempfile.mkdtemp(prefix="watch-trials-")
    watch = subprocess.Popen(
        [COMMAND, "watch", *server.watched(order), "--reports", directory, "--format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    found = threading.Event()

    def notes():
        for line in watch.stderr:
            if "found a loop" in line:
                found.set()
    threading.Thread(target=notes, daemon=True).start()
    # A loop that rests for good is not seen there twice before it turns: those of all programs here do.
    if not found.wait(15 if server.has_loop else 1) and server.has_loop:
        print("    no loop found", flush=True)
    time.sleep(0.1)
    truth = server.play(order)
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


def told(report):
    """When the stall began and ended, as the report says, on CLOCK_MONOTONIC in ms."""
    wall = datetime.datetime.fromisoformat(report["started_at"][:26].rstrip("Z") + "+00:00").timestamp() * 1e3
    begin = wall - (time.time_ns() - time.monotonic_ns()) / 1e6
    return begin, begin + (report["duration_ns"] + report.get("excluded_ns", 0)) / 1e6


def culprit(report):
    found = report.get("culprit") or {}
    return (found.get("function") or found.get("symbol") or found.get("module", "").split("/")[-1] or "none")[:36]


def run(name, make, scenarios):
    server = make()
    matrix, errors, wrong, missed = collections.Counter(), {"begin": [], "end": []}, 0, 0
    for order, right in scenarios:
        for _ in range(1 if order == "LOAD" else REPEATS):
            reports, truth, late = trial(server, order)
            said = reports[0]["kind"] if reports else "none"
            is_right = said in right and len(reports) <= 1 and all(report["state"] == "recovered" for report in reports)
            # Time in which the watcher itself had no processor proves nothing, and counts towards no stall.
            is_missed = said == "none" and not is_right and late > 1
            wrong += not is_right and not is_missed
            missed += is_missed
            cause = reports[0]["cause"]["verdict"] if reports else ""
            who = culprit(reports[0]) if reports else ""
            note = "" if is_right else f"missed, {late} looks late" if is_missed else "WRONG"
            matrix[(order, "/".join(sorted(right)), said, cause, who, len(reports), note)] += 1
            if reports and truth is not None and is_right:
                for key, at, true in zip(errors, told(reports[0]), truth):
                    errors[key].append(at - true / 1e6)
    server.stop()
    print(f"{name}")
    print(f"  {'scenario':20} {'right':18} {'said':10} {'cause':10} {'culprit':36} reports times")
    orders = [order for order, _ in scenarios]
    for (order, right, said, cause, who, count, note), times in sorted(matrix.items(), key=lambda row: orders.index(row[0][0])):
        print(f"  {order:20} {right:18} {said:10} {cause:10} {who:36} {count:7} {times:5} {note}")
    for key, values in errors.items():
        values.sort()
        if values:
            print(f"  {key} told minus true: min {values[0]:.1f} median {values[len(values) // 2]:.1f} max {values[-1]:.1f} ms ({len(values)})")
    print(f"  {wrong} wrong and {missed} missed while the watcher was late, of {sum(matrix.values())}", flush=True)
    return wrong


wanted = os.environ.get("ONLY", "").split(",") if os.environ.get("ONLY") else PROGRAMS
failures = 0
for name, (make, scenarios) in PROGRAMS.items():
    if name not in wanted:
        continue
    missing = make.missing() if isinstance(make, type) else [tool for tool in NEEDS.get(name, []) if not shutil.which(tool)]
    if missing:
        print(f"{name}: skipped, this machine has no {', '.join(missing)}", flush=True)
        continue
    failures += run(name, make, scenarios)
sys.exit(1 if failures else 0)
