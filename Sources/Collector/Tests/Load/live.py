"""Measures how long a stall takes from its detection until the collector's live feed shows it, on the whole way: a report in a directory,
'stall-monitor ship', the collector, server-sent events.

  live.py COLLECTOR MONITOR REPORT [--reports 300] [--rate 10]

COLLECTOR and MONITOR are the programs (release builds), REPORT is the file of a report, of which others are made. Prints one line of JSON:
milliseconds from the report's file to the event (median, 99th of a hundred, most), and the processor time of 'ship'. Exits with 1 if an event
is missing.
"""
import argparse
import http.client
import json
import os
import random
import subprocess
import tempfile
import threading
import time

import load


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("collector")
    parser.add_argument("monitor")
    parser.add_argument("report")
    parser.add_argument("--reports", type=int, default=300)
    parser.add_argument("--rate", type=float, default=10, help="reports a second")
    return parser.parse_args()


def write(folder, template):
    """A report as a monitor writes it when it detects a stall: whole or not at all. Returns its id and the moment."""
    report = dict(template, id="01M8" + "".join(random.choices(load.ALPHABET, k=22)))
    # Ids sort by time: their first ten characters are milliseconds since 1970.
    number = time.time_ns() // 1_000_000
    report["id"] = "".join(load.ALPHABET[number >> 5 * place & 31] for place in range(9, -1, -1)) + report["id"][10:]
    moment = time.time_ns()
    report["started_at"] = load.stamp(moment / 1e9 - 0.25)
    report["detected_at"] = load.stamp(moment / 1e9)
    report["ended_at"] = load.stamp(moment / 1e9)
    path = f"{folder}/stall-{report['id']}.json"
    with open(path + ".tmp", "w") as file:
        json.dump(report, file)
    os.rename(path + ".tmp", path)
    return report["id"], moment


def follow(port, count, seen, ready):
    """Reads the live feed until so many stalls have come."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", "/api/v1/live?after=0")
    answer = connection.getresponse()
    ready.set()
    try:
        while len(seen) < count:
            line = answer.readline()
            if not line:
                return
            if line.startswith(b"data: "):
                seen.setdefault(json.loads(line[6:])["id"], time.time_ns())
    except TimeoutError:
        return


def main():
    options = arguments()
    template = json.load(open(options.report))
    with tempfile.TemporaryDirectory(dir=os.environ.get("LOAD_DIRECTORY")) as folder:
        reports = folder + "/reports"
        os.mkdir(reports)
        collector, port = load.start(options.collector, folder)
        command = [options.monitor, "ship", reports, "--collector", f"http://127.0.0.1:{port}", "--checkpoint", folder + "/checkpoint"]
        log = open(folder + "/ship.log", "w")
        ship = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            made, seen, ready = {}, {}, threading.Event()
            reader = threading.Thread(target=follow, args=(port, options.reports, seen, ready))
            reader.start()
            ready.wait()
            begin = time.monotonic()
            for number in range(options.reports):
                time.sleep(max(0, begin + number / options.rate - time.monotonic()))
                name, moment = write(reports, template)
                made[name] = moment
            reader.join()
            seconds = load.processor(ship)
            wall = time.monotonic() - begin
        finally:
            for process in (ship, collector):
                process.terminate()
                process.wait()
        told = open(folder + "/ship.log").read()
    times = sorted((seen[name] - moment) / 1e6 for name, moment in made.items() if name in seen)
    print(json.dumps({
        "reports": len(times), "rate": options.rate, "live_ms": load.parts(times, 1),
        "ship_processor_percent": round(100 * seconds / wall, 2),
    }))
    if len(times) != options.reports:
        raise SystemExit(f"{options.reports - len(times)} stalls did not come: {told[-500:]}")


if __name__ == "__main__":
    main()
