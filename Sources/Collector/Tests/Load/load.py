"""Measures how fast a collector takes reports: it makes reports of many hosts and sends them to a collector that it starts.

  load.py COLLECTOR REPORT [--reports 200000] [--batch 500] [--senders 4] [--rate REPORTS_PER_SECOND]

COLLECTOR is the program (a release build), REPORT is the file of a report, of which others are made. The faults are skewed as in real life: a few
make most of the stalls. Everything is packed before the clock starts. Prints one line of JSON: reports a second until all are acknowledged, milliseconds
until the acknowledgement of a batch (median, 99th of a hundred, most), the collector's memory, and milliseconds until the answer to questions. Exits with 1
if anything was refused or is missing.
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
    parser.add_argument("--days", type=float, default=7, help="the reports' stalls are spread over so many days")
    parser.add_argument("--rate", type=float, help="reports a second at most; without it as fast as they are taken")
    return parser.parse_args()


def stamp(moment):
    return time.strftime("%Y-%m-%dT%H:%M:%S.", time.gmtime(moment)) + "%09dZ" % (moment % 1 * 1e9)


def identity(moment):
    """An id as monitors make them: it begins with the time, in milliseconds."""
    time_digits = (ALPHABET[int(moment * 1000) >> 5 * place & 31] for place in reversed(range(10)))
    return "".join(time_digits) + "".join(random.choices(ALPHABET, k=16))


def parts(times, digits=1):
    """Of sorted times."""
    part = lambda share: round(times[min(int(share * len(times)), len(times) - 1)], digits)
    return {"median": part(0.5), "p99": part(0.99), "most": part(1)} if times else {}


def processor(process):
    """Seconds of processor time so far."""
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return sum(int(field) for field in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def bodies(path, reports, batch, days):
    """Packed batches. What differs from report to report is put in as text: making a tree of each takes too long."""
    template = json.load(open(path))
    template.pop("aliases", None)  # They would make all reports one fault.
    text = json.dumps(template, separators=(",", ":"))
    random.seed(16)
    now = time.time()
    marks = {template["id"]: "@id@", template["fingerprint"]: "@fault@", template["host"]["name"]: "@host@"}
    for old, mark in marks.items():
        text = text.replace(f'"{old}"', f'"{mark}"')
    text = re.sub(r'"(started_at|detected_at|ended_at)":"[^"]*"', r'"\1":"@\1@"', text)
    for start in range(0, reports, batch):
        lines = []
        for _ in range(min(batch, reports - start)):
            began = now - random.random() * days * 86400
            # Zipf: the first fault has about a seventh of all.
            fault = min(int(random.paretovariate(0.9)), 1000)
            line = text.replace("@id@", identity(began))
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


QUESTIONS = {
    "faults": "/api/v1/faults?since=30d&limit=1000",
    "faults of a host": "/api/v1/faults?since=30d&host=web7",
    "one fault": "/api/v1/faults/v2:0000000000000001?since=30d",
    "latest stalls": "/api/v1/stalls?since=30d&limit=100",
}


def ask(port, path):
    """The answer, and the median of five times in milliseconds."""
    connection, times = http.client.HTTPConnection("127.0.0.1", port, timeout=120), []
    for _ in range(5):
        asked = time.perf_counter()
        connection.request("GET", path)
        response = connection.getresponse()
        answer = json.loads(response.read())
        times.append(1000 * (time.perf_counter() - asked))
        if response.status != 200:
            sys.exit(f"{path} is answered by {response.status}: {answer}")
    return answer, round(sorted(times)[2], 1)


def main():
    options = arguments()
    made = list(enumerate(bodies(options.report, options.reports, options.batch, options.days)))
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
            cpu = processor(process)
            answers = {name: ask(port, path) for name, path in QUESTIONS.items()}
            faults = answers["faults"][0]["faults"]
            stored = sum(fault["reports"] for fault in faults)
            answered, _ = memory(process)
            disk = os.path.getsize(folder + "/stalls.db")
        finally:
            process.terminate()
            process.wait()
    times = sorted(1000 * seconds for seconds in times)
    print(json.dumps({
        "reports": options.reports, "batch": options.batch, "senders": options.senders, "bytes_a_report_packed": packed // options.reports,
        "reports_a_second": int(options.reports / seconds), "processor_us_a_report": round(1e6 * cpu / options.reports, 1),
        "ack_ms": parts(times),
        "memory_mib": {"before": before >> 20, "after": resident >> 20, "most": most >> 20, "after questions": answered >> 20},
        "bytes_a_report_on_disk": disk // options.reports, "answer_ms": {name: time for name, (_, time) in answers.items()}, "faults": len(faults),
    }))
    if failures or stored != options.reports:
        sys.exit(f"{len(failures)} batches failed, {stored} reports are there: {failures[:1]}")


if __name__ == "__main__":
    main()
