"""trials.py COMMAND SAMPLE-TARGET [LOOP-SERVERS]: stalls programs, and compares the reports with the truth. Programs that contain no
monitor are watched by COMMAND, `stall-monitor watch`. LOOP-SERVERS is the folder with loop-server and loop-server-watched; the latter
contains the monitor, whose own reports are judged.

REPEATS is how often each stall is made (2), ONLY=redis,nginx selects programs, ORDERS=lock,dns their orders, LOAD_SECONDS is how long each server is under load, with BUSY=8
eight processes compute at the same time. Prints a confusion matrix for each program, how far the reported beginnings and ends are from the true ones, and at the end the sums.
Exits with 1 if a stall of 300 ms was missed although the watcher was on time, a stall was reported that did not happen, a kind, cause, culprit or lock owner was wrong, a
beginning is off by more than 50 ms, an end by more than 50 ms (5 ms by the monitor inside), or a stall was not reported as over.
"""
import collections
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

import judging
import programs

COMMAND, TARGET = sys.argv[1], sys.argv[2]
LOOP_PROGRAMS = sys.argv[3] if len(sys.argv) > 3 else None
REPEATS, BUSY = int(os.environ.get("REPEATS", "2")), int(os.environ.get("BUSY", "0"))
PROGRAMS = programs.programs(TARGET, LOOP_PROGRAMS)


def chosen(variable):
    return [word for word in os.environ.get(variable, "").split(",") if word]


def inside_trial(server, order):
    """One stall of a program that contains the monitor: its reports, the truth, and for how many milliseconds the watchdog had no CPU."""
    before = set(server.written())
    late = judging.Lateness(server.pid, server.watchdog())
    truth = server.play(order)
    late_ms = late.during(truth)
    return server.reports_since(before), truth, late_ms


def outside_trial(server, order):
    """The same for a program without the monitor, watched by a new command each time: one command would only count the second stall of a kind."""
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
    # A loop that never turns is not seen at rest twice: the loops of all programs here turn.
    if not found.wait(15 if server.has_loop else 1) and server.has_loop:
        print("    no loop found", flush=True)
    time.sleep(0.1)
    late = judging.Lateness(watch.pid)
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


sums = collections.Counter()


class Program:
    """The trials of one program."""

    def __init__(self, name, make, scenarios):
        orders = chosen("ORDERS")
        self.name, self.server = name, make()
        self.scenarios = [row for row in scenarios if not orders or row[0].split()[0] in orders]
        self.is_inside = getattr(self.server, "is_inside", False)
        self.limits = judging.INSIDE if self.is_inside else judging.OUTSIDE
        self.matrix, self.errors = collections.Counter(), {"begin": [], "end": []}
        self.results = collections.Counter()

    def run(self):
        for order, right in self.scenarios:
            for _ in range(1 if order == "LOAD" else REPEATS):
                self.note(order, right, *(inside_trial if self.is_inside else outside_trial)(self.server, order))
        self.server.stop()
        self.show()
        sums.update(self.results)
        return self.results["wrong"]

    def note(self, order, right, reports, truth, late):
        wrong, off = judging.faults(self.name, self.limits, order, right, reports, truth)
        # Time in which the watcher had no CPU counts towards no stall, and times are known only as precisely as it could look: that excuses
        # a missing or inexact report if it is more than a look's slack, within the stall itself.
        is_excused = bool(wrong) and late > 10 and (wrong == ["not told"] or all(" ms" in word for word in wrong))
        self.count(order, right, reports, wrong, off, is_excused)
        said = reports[0]["kind"] if reports else "none"
        cause = reports[0]["cause"]["verdict"] if reports else ""
        words = ", ".join(re.sub(r" [-+0-9]+ ms", " off", word) for word in wrong)
        words = f"excused ({words}; no processor)" if is_excused else f"WRONG: {words}" if wrong else ""
        who = judging.culprit(reports[0]) if reports else ""
        self.matrix[(order, "/".join(sorted(right)), said, cause, who, len(reports), words)] += 1

    def count(self, order, right, reports, wrong, off, is_excused):
        results, is_stall = self.results, "none" not in right
        results["excused" if is_excused else "wrong" if wrong else "right"] += 1
        results["stalls"] += is_stall
        results["told"] += is_stall and bool(reports)
        results["kind right"] += is_stall and bool(reports) and reports[0]["kind"] in right
        results["false alarms"] += right == {"none"} and bool(reports)
        if self.name in programs.NAMED and order.split()[0] in programs.CULPRITS and reports and is_stall:
            results["culprits"] += 1
            results["culprit right"] += "culprit" not in wrong and "stack" not in wrong
        for key, value in off.items():
            self.errors[key].append(value)
            results[f"{key}s"] += 1
            results[f"{key} right"] += abs(value) <= self.limits[key]

    def show(self):
        print(f"{self.name}")
        print(f"  {'scenario':20} {'right':18} {'said':10} {'cause':10} {'culprit':36} reports times")
        orders = [order for order, _ in self.scenarios]
        for (order, right, said, cause, who, count, words), number in sorted(
                self.matrix.items(), key=lambda row: orders.index(row[0][0])):
            print(f"  {order:20} {right:18} {said:10} {cause:10} {who:36} {count:7} {number:5} {words}")
        for key, values in self.errors.items():
            values.sort()
            if values:
                middle = values[len(values) // 2]
                print(f"  {key} reported minus true: min {values[0]:.1f} median {middle:.1f} max {values[-1]:.1f} ms ({len(values)})")
        print(f"  {self.results['wrong']} wrong and {self.results['excused']} excused of {sum(self.matrix.values())}", flush=True)


wanted = chosen("ONLY") or PROGRAMS
busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
failures, skipped = 0, []
try:
    for name, (make, scenarios) in PROGRAMS.items():
        if name not in wanted:
            continue
        missing = programs.missing(name, make, LOOP_PROGRAMS)
        if missing:
            skipped.append(f"{name} (no {', '.join(missing)})")
            continue
        failures += Program(name, make, scenarios).run()
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
if not any(sums[result] for result in ("right", "wrong", "excused")):
    sys.exit("trials: nothing was tried: ONLY and ORDERS name none of the programs and orders, or what they need is missing")
sys.exit(1 if failures else 0)
