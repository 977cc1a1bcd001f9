"""Compares reports with the truth."""
import datetime
import re
import threading
import time

import programs

# Milliseconds by which a beginning and an end may be off.
OUTSIDE, INSIDE = {"begin": 50, "end": 50}, {"begin": 50, "end": 5}


class Lateness:
    """How long a thread waited for a CPU, and when: read from the kernel every 5 ms."""

    def __init__(self, pid, thread=None):
        self.path, self.waits, self.ends = f"/proc/{pid}/task/{thread or pid}/schedstat", [], False
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
        """Milliseconds of waiting within a stall."""
        self.ends = True
        return sum(wait for at, wait in self.waits if truth is None or truth[0] <= at <= truth[1] + wait) / 1e6


def times(report):
    """When the stall began and ended according to the report, on CLOCK_MONOTONIC in ms."""
    wall = datetime.datetime.fromisoformat(report["started_at"][:26].rstrip("Z") + "+00:00").timestamp() * 1e3
    begin = wall - (time.time_ns() - time.monotonic_ns()) / 1e6
    return begin, begin + (report["duration_ns"] + report.get("excluded_ns", 0)) / 1e6


def culprit(report):
    found = report.get("culprit") or {}
    return (found.get("function") or found.get("symbol") or found.get("module", "").split("/")[-1] or "none")[:36]


def functions(report, role):
    return [frame.get("function") or ""
            for stack in report.get("stacks") or [] if stack.get("role") == role for frame in stack.get("frames", [])]


def faults(name, limits, order, right, reports, truth):
    """The errors in the reports, in words; and by how much the times are off."""
    said = reports[0]["kind"] if reports else "none"
    if said not in right:
        return ["kind" if reports else "not told"], {}
    if not reports:
        return [], {}
    wrong, off, report, order = [], {}, reports[0], order.split()[0]
    if len(reports) > 1:
        wrong.append(f"{len(reports)} reports")
    if any(report["state"] != "recovered" for report in reports):
        wrong.append("not over")
    if name in programs.NAMED:
        wrong += faults_of_cause(order, report)
    if truth is not None:
        for key, at, true in zip(limits, times(report), truth):
            off[key] = at - true / 1e6
            if abs(off[key]) > limits[key]:
                wrong.append(f"{key} {off[key]:+.0f} ms")
    return wrong, off


def lacked_a_processor(report):
    """Whether the thread waited for a CPU longer than it ran: on a busy machine that is the cause, whatever its order was."""
    evidence = report["cause"].get("evidence") or {}
    return evidence.get("run_delay_ns", 0) > evidence.get("cpu_ns", 0)


def faults_of_cause(order, report):
    wrong, wanted = [], programs.CULPRITS.get(order)
    if wanted and not re.search(wanted, culprit(report)):
        wrong.append("culprit" if any(re.search(wanted, function) for function in functions(report, "stalled")) else "stack")
    verdicts = programs.VERDICTS.get(order, set()) | ({"starved"} if lacked_a_processor(report) else set())
    if order in programs.VERDICTS and report["cause"]["verdict"] not in verdicts:
        wrong.append("cause")
    owner = programs.OWNERS.get(order)
    if owner and not any(re.search(owner, function) for function in functions(report, "lock_owner")):
        wrong.append("owner")
    return wrong
