"""follow.py COMMAND DIR: follows a directory with `COMMAND tail -f DIR`. Prints the wall time until the past stalls are shown, the processor time
until then and the peak memory; then the processor time of five seconds without news, and the time from a new report to its line."""
import os
import re
import secrets
import signal
import subprocess
import sys
import time

command, directory = sys.argv[1:3]
pattern = next(entry.path for entry in os.scandir(directory) if entry.name.startswith("stall-"))
with open(pattern) as file:
    report = file.read()
known = re.search(r"stall-(\w{26})\.json", pattern).group(1)


def new_id():
    number = int(time.time() * 1000) << 80 | secrets.randbits(80)
    return "".join("0123456789ABCDEFGHJKMNPQRSTVWXYZ"[number >> 5 * digit & 31] for digit in reversed(range(26)))


def figures(process):
    """Processor time in seconds, and peak memory in MB."""
    with open(f"/proc/{process}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    with open(f"/proc/{process}/status") as file:
        peak = int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1)) / 1024
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), peak


start = time.monotonic()
tail = subprocess.Popen([command, "tail", "-f", "-n", "10", directory], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
for _ in range(10):
    tail.stdout.readline()
shown = time.monotonic() - start
time.sleep(2)
first, _ = figures(tail.pid)
time.sleep(5)
then, _ = figures(tail.pid)
name = new_id()
with open(f"{directory}/.new", "w") as file:
    file.write(report.replace(known, name))
begin = time.monotonic()
os.rename(f"{directory}/.new", f"{directory}/stall-{name}.json")
while name not in tail.stdout.readline().decode():
    pass
latency = time.monotonic() - begin
_, peak = figures(tail.pid)
tail.send_signal(signal.SIGINT)
tail.wait()
os.unlink(f"{directory}/stall-{name}.json")
print(f"{shown:7.2f}s {first:7.2f}s {peak:6.0f}MB   at rest {(then - first) / 5 * 100:.1f} % of a processor, a new report after {latency * 1000:.0f} ms")
