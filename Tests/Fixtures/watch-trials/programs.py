"""The trials: the programs, the orders for each, and the correct reports."""
import os
import shutil

import loop_servers
import servers

HERE = os.path.dirname(os.path.abspath(__file__))

# An order, and the correct kinds. For a watcher, a turn of many callbacks in an interpreter is one callout.
COMMON = [
    ("compute 600", {"blocked"}), ("compute 330", {"blocked"}), ("compute 150", {"none"}), ("sleep 600", {"blocked"}),
    ("sleep 330", {"blocked"}), ("sleep 150", {"none"}), ("short 600", {"blocked"}), ("calls 600", {"blocked"}),
    ("turns 2000", {"none"}), ("STOP 800", {"none"}), ("IDLE 2000", {"none"}),
]
SPIN = [("spin 2000", {"none"})]
# For the servers on Swift's loops.
SWIFT = COMMON + [
    ("deep 600", {"blocked"}), ("read 600", {"blocked"}), ("lock 600", {"blocked"}), ("disk 600", {"blocked"}), ("dns 600", {"blocked"}),
    ("nested 600", {"blocked"}), ("polling 2000", {"none"}),
]
MORE = [("BURSTS", {"none"}), ("LOAD", {"none"})]
POOL = [("pool 600", {"blocked"}), ("pool 330", {"blocked"}), ("one-job 600", {"none"}), ("backlog 1500", {"none"})]

# The functions to blame. They are known for the programs in NAMED.
CULPRITS = {
    "compute": "compute_until|computeUntil", "sleep": "sleep_until|sleepFor", "short": "sleep_shortly_until|sleepShortlyUntil|sleep_until",
    "calls": "call_until|callUntil", "call": "call_[a-z_]+", "nested": "turn_inner_loop_until|pollShortlyUntil",
    "poll0": "poll_without_waiting_until", "made": "made at run time|compute_until|compute_for_made",
    "turn": "run_callback|compute_until|computeUntil", "chain": "computeUntil", "deep": "computeUntil|computeDeep",
    "read": "readFromPipe", "lock": "waitForLock|wait_for_lock_until", "disk": "syncFileUntil", "dns": "lookUpName", "pool": "sleepFor|occupyWorker",
}
# The verdict, in the report's words ("blocked" is a wait).
VERDICTS = {
    "compute": {"on_cpu"}, "deep": {"on_cpu"}, "chain": {"on_cpu"}, "turn": {"on_cpu"}, "sleep": {"blocked"}, "read": {"blocked"},
    "lock": {"blocked"}, "dns": {"blocked"}, "pool": {"blocked"}, "disk": {"blocked", "disk_wait", "on_cpu"},
}
# The owner of what the stalled thread waits for.
OWNERS = {"lock": "holdLock|hold_lock"}


def swift_orders(kind, is_inside):
    orders = list(SWIFT)
    if kind != "foundation":
        # Callbacks one after the other in one turn of the loop. The monitor inside sees only the loop's waits: for it they are one callout.
        many = {"blocked"} if is_inside else {"congested"}
        orders += [("turn 600", many), ("chain 600", many)] + MORE
    if not loop_servers.can_answer_names():
        orders = [row for row in orders if row[0].split()[0] != "dns"]
    return orders + POOL


def programs(target, loop_programs):
    """By name: a function that starts the program, and its orders. `loop_programs` is the folder in which Tests/LoopServers were built."""
    found = {
        "C": (lambda: servers.Told([target, "loop"]), COMMON + SPIN + [
            ("call read_pipe 600", {"blocked"}), ("call write_pipe 600", {"blocked"}), ("call sem_wait 600", {"blocked"}),
            ("call flock 600", {"blocked"}), ("call waitpid 600", {"blocked"}), ("call poll 600", {"blocked"}),
            ("nested 600", {"blocked"}), ("poll0 600", {"blocked"}), ("made 600", {"blocked"}), ("turn 600", {"congested"}),
            ("lock 600", {"blocked"}), ("exec 600", {"none"}),
        ]),
        # The first loop may be reported as stalled until the next one is known, but not longer. The next one waits at the same place of the code,
        # and hits the first one's breakpoint: then only the callout's return proves anything.
        "C-moved": (lambda: servers.Told([target, "loop"]), [
            ("move 6500", {"blocked", "none"}), ("compute 600", {"blocked"}), ("sleep 600", {"blocked"}), ("IDLE 2000", {"none"}),
        ]),
        "asyncio": (lambda: servers.Told(["python3", f"{HERE}/server.py"]), COMMON + SPIN + [
            ("read 600", {"blocked"}), ("lock 600", {"blocked"}), ("child 600", {"blocked"}), ("turn 600", {"congested", "blocked"}),
        ]),
        "node": (lambda: servers.Told(["node", f"{HERE}/server.js"]), COMMON + SPIN + [
            ("child 600", {"blocked"}), ("turn 600", {"congested", "blocked"}),
        ]),
        "redis": (servers.Redis, servers.Redis.scenarios),
        "nginx": (servers.Nginx, servers.Nginx.scenarios),
        "postgres": (servers.Postgres, servers.Postgres.scenarios),
        "python-client": (lambda: servers.Client(["python3", "-c", servers.PYTHON_CLIENT]), servers.Client.scenarios),
        "bash-client": (lambda: servers.Client(["bash", "-c", servers.SHELL_CLIENT]), servers.Client.scenarios),
    }
    for kind in ("nio", "hummingbird", "foundation"):
        for is_inside in (False, True):
            found[kind + ("-inside" if is_inside else "")] = (
                lambda kind=kind, is_inside=is_inside: loop_servers.LoopServer(loop_programs, kind, is_inside),
                swift_orders(kind, is_inside))
    return found


SWIFT_NAMES = {kind + place for kind in ("nio", "hummingbird", "foundation") for place in ("", "-inside")}
NAMED = {"C"} | SWIFT_NAMES
NEEDS = {
    "asyncio": ["python3"], "node": ["node"], "python-client": ["python3"], "bash-client": ["bash"],
    "nio": ["wrk"], "nio-inside": ["wrk"], "hummingbird": ["wrk"], "hummingbird-inside": ["wrk"],
}


def missing(name, make, loop_programs):
    """What this machine lacks to run a program."""
    lacks = make.missing() if isinstance(make, type) else [tool for tool in NEEDS.get(name, []) if not shutil.which(tool)]
    return lacks + (["Tests/LoopServers"] if name in SWIFT_NAMES and not loop_programs else [])
