"""Measures how fast a collector takes reports: it makes reports of many hosts, sends them to a collector that it starts, and looks at both.

  load.py COLLECTOR REPORT [--reports 200000] [--batch 500] [--senders 4] [--rate REPORTS_PER_SECOND]

COLLECTOR is the program (a release build), REPORT the file of a report that is made many of. The faults are skewed as in real life: a few make most of
the stalls. Everything is packed before the clock starts. Prints one line of JSON: reports a second until all is acknowledged, milliseconds until the
acknowledgement of a batch (median, 99th of a hundred, most), and the collector's memory. Ends with 1 where anything was refused or is missing.
"""
import argparse
import gzip
import http.client
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("collector")
    parser.add_argument("report")
    parser.add_argument("--reports", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument("--rate", type=float, help="reports a second at most; without it as fast as they are taken")
    return parser.parse_args()


def bodies(path, reports, batch):
    """Packed batches. What differs from report to report is put in as text: making a tree of each takes too long."""
    text = json.dumps(json.load(open(path)), separators=(",", ":"))
    template = json.loads(text)
    random.seed(16)
    now = time.time()
    marks = {template["id"]: "@id@", template["fingerprint"]: "@fault@", template["host"]["name"]: "@host@"}
    for old, mark in marks.items():
        text = text.replace(f'"{old}"', f'"{mark}"')
    text = re.sub(r'"(started_at|detected_at|ended_at)":"[^"]*"', r'"\1":"@\1@"', text)
    stamp = lambda moment: time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(moment)) + "%09dZ" % (moment % 1 * 1e9)
    for start in range(0, reports, batch):
        lines = []
        for _ in range(min(batch, reports - start)):
            began = now - random.random() * 7 * 86400
            # Zipf: the first fault has about a seventh of all.
            fault = min(int(random.paretovariate(0.9)), 1000)
            line = text.replace("@id@", "01M8" + "".join(random.choices(ALPHABET, k=22)))
            line = line.replace("@fault@", "v2:%016x" % fault).replace("@host@", f"web{random.randrange(500)}")
            line = line.replace("@started_at@", stamp(began)).replace("@detected_at@", stamp(began)).replace("@ended_at@", stamp(began + 1))
            lines.append(line)
        yield len(lines), gzip.compress(("\n".join(lines) + "\n").encode(), 1)


def start(program, folder):
    log = open(folder + "/log", "w")
    process = subprocess.Popen([program, "serve", "--listen", "127.0.0.1:0", "--store", folder + "/stalls.db"], stderr=log)
    for _ in range(600):
        found = re.search(r"listening on http://[\d.]+:(\d+)", open(folder + "/log").read())
        if found:
            return process, int(found[1])
        time.sleep(0.1)
    sys.exit("the collector does not come up: " + open(folder + "/log").read())


def memory(process):
    """Resident now, and at most until now; in bytes."""
    text = open(f"/proc/{process.pid}/status").read()
    return [int(re.search(name + r":\s+(\d+)", text)[1]) * 1024 for name in ("VmRSS", "VmHWM")]


def send(port, batches, begin, rate, times, failures):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    while True:
        try:
            number, (count, body) = batches.pop()
        except IndexError:
            return
        if rate:
            time.sleep(max(0, begin + number * count / rate - time.perf_counter()))
        started = time.perf_counter()
        while True:
            connection.request("POST", "/v1/reports", body, {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"})
            answer = connection.getresponse()
            receipt = json.loads(answer.read())
            if answer.status != 429:
                break
            connection.close()
            time.sleep(float(answer.headers["Retry-After"]))
        times.append(time.perf_counter() - started)
        if answer.status != 202 or receipt["accepted"] != count:
            failures.append((answer.status, receipt))


def main():
    options = arguments()
    made = list(enumerate(bodies(options.report, options.reports, options.batch)))
    made.reverse()
    packed = sum(len(body) for _, (_, body) in made)
    with tempfile.TemporaryDirectory(dir=os.environ.get("LOAD_DIRECTORY")) as folder:
        process, port = start(options.collector, folder)
        try:
            before, _ = memory(process)
            times, failures, begin = [], [], time.perf_counter()
            senders = [
                threading.Thread(target=send, args=(port, made, begin, options.rate, times, failures)) for _ in range(options.senders)
            ]
            for sender in senders:
                sender.start()
            for sender in senders:
                sender.join()
            seconds = time.perf_counter() - begin
            resident, most = memory(process)
            cpu = sum(int(word) for word in open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            asked = time.perf_counter()
            connection.request("GET", "/api/v1/faults?since=30d&limit=1000")
            faults = json.loads(connection.getresponse().read())["faults"]
            question = time.perf_counter() - asked
            stored = sum(fault["reports"] for fault in faults)
            disk = os.path.getsize(folder + "/stalls.db")
        finally:
            process.terminate()
            process.wait()
    times.sort()
    part = lambda share: round(1000 * times[min(int(share * len(times)), len(times) - 1)], 1)
    print(json.dumps({
        "reports": options.reports, "batch": options.batch, "senders": options.senders, "bytes_a_report_packed": packed // options.reports,
        "reports_a_second": int(options.reports / seconds), "processor_us_a_report": round(1e6 * cpu / options.reports, 1),
        "ack_ms": {"median": part(0.5), "p99": part(0.99), "most": part(1)},
        "memory_mib": {"before": before >> 20, "after": resident >> 20, "most": most >> 20},
        "bytes_a_report_on_disk": disk // options.reports, "faults_of_30_days_ms": round(1000 * question, 1), "faults": len(faults),
    }))
    if failures or stored != options.reports:
        sys.exit(f"{len(failures)} batches failed, {stored} reports are there: {failures[:1]}")


main()
