"""gdb's word: stops where stacks.c has walked a sleeping thread's stack, walks it too, and compares every address."""
import time

import gdb

SECONDS = 60  # as many as there is time for
compared = different = 0


def addresses_behind_signal():
    """The frames that the signal interrupted, of the thread that is in its handler."""
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        frame, found, inside = gdb.newest_frame(), [], False
        while frame is not None and frame.is_valid():
            if inside:
                found.append(frame.pc())
            inside = inside or frame.type() == gdb.SIGTRAMP_FRAME
            frame = frame.older()
        if inside:
            return found
    return []


def compare():
    global compared, different
    count = int(gdb.parse_and_eval("count"))
    ours = [int(gdb.parse_and_eval("frames[%d].address" % i)) for i in range(count)]
    theirs = addresses_behind_signal()
    compared += 1
    if ours != theirs:
        different += 1
        print("gdb: ours", [hex(a) for a in ours], "gdb's", [hex(a) for a in theirs])


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
