"""Run by gdb: stops where stacks.c has walked a sleeping thread's stack, walks it as well, and compares every address."""
import time

import gdb

SECONDS = 60  # as many stacks as fit into this time
compared = different = 0


def stacks_behind_signals():
    """The frames below the signal handler, of each thread in its handler: a thread that was captured earlier may still be in it.
    Calls that were inlined, or replaced by a tail call, have no frame."""
    stacks = []
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        frame, found, inside = gdb.newest_frame(), [], False
        while frame is not None and frame.is_valid():
            if inside and frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):
                found.append(frame.pc())
            inside = inside or frame.type() == gdb.SIGTRAMP_FRAME
            frame = frame.older()
        if inside:
            stacks.append(found)
    return stacks


def compare():
    global compared, different
    count = int(gdb.parse_and_eval("count"))
    ours = [int(gdb.parse_and_eval("frames[%d].address" % i)) for i in range(count)]
    theirs = stacks_behind_signals()
    compared += 1
    if ours not in theirs:
        different += 1
        print("gdb: ours", [hex(a) for a in ours], "gdb's", [[hex(a) for a in stack] for stack in theirs])


gdb.execute("set pagination off")
gdb.execute("handle SIGUSR1 SIGPROF SIGTERM nostop noprint pass")
gdb.Breakpoint("show_to_witness")
end = time.monotonic() + SECONDS
while time.monotonic() < end:
    try:
        gdb.execute("continue", to_string=True)
        if not gdb.selected_inferior().threads():
            break
    except gdb.error:
        break  # the program has ended
    compare()
print("gdb: %d stacks compared, %d different" % (compared, different))
