"""trials.py COMMAND SAMPLE-TARGET: plays stalls to programs that nobody prepared, and compares what `stall-monitor watch` says with
what was true.

REPEATS is how often each stall is made (2), ONLY=redis,nginx takes some of the programs, LOAD_SECONDS is how long each server is put under load, BUSY=8 has so many
processes compute besides. Prints a confusion matrix for each program, how far the told beginnings and ends are from the true ones, and at the end the sums.
Leaves with 1 if a stall of 300 ms was not told though the watcher was in time, one was told of what is none, a kind was wrong, a beginning or an end is off by more
than 50 ms, a known culprit is not named, or a stall was not told as over.
"""
import collections
import datetime
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import servers

COMMAND, TARGET = sys.argv[1], sys.argv[2]
REPEATS, BUSY = int(os.environ.get("REPEATS", "2")), int(os.environ.get("BUSY", "0"))
# Milliseconds by which a beginning and an end may be off.
OFF = {"begin": 50, "end": 50}
HERE = os.path.dirname(os.path.abspath(__file__))

# What is asked for, and the kinds that are right. A turn of many callbacks in an interpreter is one callout to who watches its loop.
# Where the functions have names, the one that is to be blamed: of the innermost frames that are the program's own.
CULPRITS = {
    "compute": "compute_until", "sleep": "sleep_until", "short": "sleep_shortly_until|sleep_until",
    "calls": "call_until", "call": "call_[a-z_]+", "nested": "turn_inner_loop_until", "poll0": "poll_without_waiting_until",
    "made": "made at run time|compute_until|compute_for_made", "turn": "run_callback|compute_until",
}
NAMED = {"C"}
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


class Lateness:
    """How long a process waited for a processor, and when: what the kernel says of its first thread, each 5 ms."""

    def __init__(self, pid):
        self.path, self.waits, self.ends = f"/proc/{pid}/schedstat", [], False
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        last = None
        while not self.ends:
            try:
                with open(self.path) as file:
                    waited, now = int(file.read().split()[1]), time.monotonic_ns()
            except (OSError, IndexError):
                return
            if last is not None and waited > last:
                self.waits.append((now, waited - last))
            last = waited
            time.sleep(0.005)

    def during(self, truth):
        """Milliseconds of it within a stall."""
        self.ends = True
        return sum(wait for at, wait in self.waits if truth is None or truth[0] <= at <= truth[1] + wait) / 1e6


def trial(server, order):
    """One stall. Returns the reports at their ends, the truth, and for how many milliseconds of it the watcher waited for a processor."""
    directory = tempfile.mkdtemp(prefix="watch-trials-")
    # Under a watcher of its own: the second of a kind would be counted only.
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
    late = Lateness(watch.pid)
    truth = server.play(order)
    late_ms = late.during(truth)
    time.sleep(0.3)
    watch.send_signal(signal.SIGINT)
    reports = {}
    for line in watch.stdout:
        report = json.loads(line)
        reports[report["id"]] = report
    watch.wait()
    shutil.rmtree(directory, ignore_errors=True)
    return list(reports.values()), truth, late_ms


def told(report):
    """When the stall began and ended, as the report says, on CLOCK_MONOTONIC in ms."""
    wall = datetime.datetime.fromisoformat(report["started_at"][:26].rstrip("Z") + "+00:00").timestamp() * 1e3
    begin = wall - (time.time_ns() - time.monotonic_ns()) / 1e6
    return begin, begin + (report["duration_ns"] + report.get("excluded_ns", 0)) / 1e6


def culprit(report):
    found = report.get("culprit") or {}
    return (found.get("function") or found.get("symbol") or found.get("module", "").split("/")[-1] or "none")[:36]


def faults(name, order, right, reports, truth):
    """What is wrong with what was said, in words; and by how much the times are off."""
    said = reports[0]["kind"] if reports else "none"
    if said not in right:
        return ["kind" if reports else "not told"], {}
    if not reports:
        return [], {}
    wrong, off = [], {}
    if len(reports) > 1:
        wrong.append(f"{len(reports)} reports")
    if any(report["state"] != "recovered" for report in reports):
        wrong.append("not over")
    wanted = CULPRITS.get(order.split()[0])
    functions = [frame.get("function") or "" for frame in (reports[0].get("stacks") or [{}])[0].get("frames", [])]
    if name in NAMED and wanted and not re.search(wanted, culprit(reports[0])):
        wrong.append("culprit" if any(re.search(wanted, function) for function in functions) else "stack")
    if truth is not None:
        for key, at, true in zip(OFF, told(reports[0]), truth):
            off[key] = at - true / 1e6
            if abs(off[key]) > OFF[key]:
                wrong.append(f"{key} {off[key]:+.0f} ms")
    return wrong, off


sums = collections.Counter()


def run(name, make, scenarios):
    server = make()
    matrix, errors, results = collections.Counter(), {"begin": [], "end": []}, collections.Counter()
    for order, right in scenarios:
        for _ in range(1 if order == "LOAD" else REPEATS):
            reports, truth, late = trial(server, order)
            wrong, off = faults(name, order, right, reports, truth)
            # Time in which the watcher had no processor counts towards no stall; and a time is told no better than it could look. More than a
            # look's slack of it, within the stall itself.
            is_excused = bool(wrong) and late > 10 and (wrong == ["not told"] or all(" ms" in word for word in wrong))
            results["excused" if is_excused else "wrong" if wrong else "right"] += 1
            results["stalls"] += "none" not in right
            results["told"] += "none" not in right and bool(reports)
            results["kind right"] += "none" not in right and bool(reports) and reports[0]["kind"] in right
            results["false alarms"] += right == {"none"} and bool(reports)
            if name in NAMED and order.split()[0] in CULPRITS and reports and right != {"none"}:
                results["culprits"] += 1
                results["culprit right"] += "culprit" not in wrong and "stack" not in wrong
            for key, value in off.items():
                errors[key].append(value)
                results[f"{key}s"] += 1
                results[f"{key} right"] += abs(value) <= OFF[key]
            said = reports[0]["kind"] if reports else "none"
            cause = reports[0]["cause"]["verdict"] if reports else ""
            note = ", ".join(re.sub(r" [-+0-9]+ ms", " off", word) for word in wrong)
            note = f"excused ({note}; no processor)" if is_excused else f"WRONG: {note}" if wrong else ""
            matrix[(order, "/".join(sorted(right)), said, cause, culprit(reports[0]) if reports else "", len(reports), note)] += 1
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
    print(f"  {results['wrong']} wrong and {results['excused']} excused of {sum(matrix.values())}", flush=True)
    sums.update(results)
    return results["wrong"]


wanted = os.environ.get("ONLY", "").split(",") if os.environ.get("ONLY") else PROGRAMS
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
failures, skipped = 0, []
try:
    for name, (make, scenarios) in PROGRAMS.items():
        if name not in wanted:
            continue
        missing = make.missing() if isinstance(make, type) else [tool for tool in NEEDS.get(name, []) if not shutil.which(tool)]
        if missing:
            skipped.append(f"{name} (no {', '.join(missing)})")
            continue
        failures += run(name, make, scenarios)
finally:
    for process in busy:
        process.kill()
        process.wait()
print(f"\nAll of them, beside {BUSY} busy processes, load {os.getloadavg()[0]:.0f}:")
for part, whole in (("told", "stalls"), ("kind right", "told"), ("culprit right", "culprits"), ("begin right", "begins"), ("end right", "ends")):
    print(f"  {part:14} {sums[part]} of {sums[whole]}")
print(f"  false alarms   {sums['false alarms']}; wrong {sums['wrong']}, excused {sums['excused']}, right {sums['right']}")
if skipped:
    print(f"NOT TRIED: {'; '.join(skipped)}")
sys.exit(1 if failures else 0)
