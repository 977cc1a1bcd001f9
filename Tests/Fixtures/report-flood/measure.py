"""measure.py FIGURES COMMAND…: runs the command until it ends, or until its output's reader is gone; writes wall time, CPU time and peak memory
into the file FIGURES."""
import os
import resource
import signal
import subprocess
import sys
import time

start = time.monotonic()
process = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE)
first = None
while block := os.read(process.stdout.fileno(), 1 << 16):
    first = first or time.monotonic()
    try:
        os.write(1, block)
    except BrokenPipeError:
        break
# The first screen has been read; the rest is not waited for.
process.stdout.close()
status = process.wait()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as figures:
    wall = (first or time.monotonic()) - start
    figures.write(f"{wall:7.2f}s {used.ru_utime + used.ru_stime:7.2f}s {used.ru_maxrss / 1024:6.0f}MB")
    # An error is not what was to be measured. Python gives the number of a signal as a negative status.
    if status not in (0, -signal.SIGPIPE):
        figures.write(f"   ended with {status}")
