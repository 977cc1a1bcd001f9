"""A cluster of two shards with two replicas each, with ZooKeeper, and a collector before it, while parts of it are killed.

    cluster.py COLLECTOR DIRECTORY ROUNDS REPORT

What was acknowledged must be there, and be counted once; what is partial must say so.
"""

import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

from servers import Server, free_ports

CLUSTER = "fleet"


class ZooKeeper:
    def __init__(self, directory):
        self.directory, (self.port, self.admin) = directory, free_ports(2)
        os.makedirs(directory, exist_ok=True)
        with open(directory + "/zoo.cfg", "w") as file:
            file.write(
                f"tickTime=1000\ndataDir={directory}\nclientPort={self.port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
            )
        self.process = None

    def start(self):
        log = open(self.directory + "/log", "ab")
        classes = "/etc/zookeeper/conf:/usr/share/java/*"
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = ["java", "-Xmx256m", "-cp", classes, main, self.directory + "/zoo.cfg"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("ZooKeeper does not come up")
                time.sleep(0.1)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Cluster:
    def __init__(self, directory):
        self.keeper = ZooKeeper(directory + "/zookeeper")
        ports = free_ports(12)
        ports = [ports[index : index + 3] for index in range(0, 12, 3)]
        shards = "".join(
            "<shard><internal_replication>true</internal_replication>"
            + "".join(f"<replica><host>127.0.0.1</host><port>{ports[2 * shard + replica][1]}</port></replica>" for replica in (0, 1))
            + "</shard>"
            for shard in (0, 1)
        )
        self.servers = []
        for index in range(4):
            extra = f"""<zookeeper><node><host>127.0.0.1</host><port>{self.keeper.port}</port></node><session_timeout_ms>5000</session_timeout_ms></zookeeper>
  <distributed_ddl><path>/clickhouse/task_queue/ddl</path></distributed_ddl>
  <remote_servers><{CLUSTER}>{shards}</{CLUSTER}></remote_servers>
  <macros><shard>{index // 2}</shard><replica>server{index}</replica></macros>"""
            self.servers.append(Server(f"{directory}/server{index}", extra, ports[index]))

    def start(self):
        self.keeper.start()
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait()

    def address(self, quorum, database):
        hosts = ",".join(f"127.0.0.1:{server.http}" for server in self.servers)
        return f"clickhouse://{hosts}/{database}?cluster={CLUSTER}" + (f"&quorum={quorum}" if quorum else "")

    def end(self):
        for server in self.servers:
            server.kill()
        self.keeper.kill()


class Collector:
    def __init__(self, program, store, log):
        self.command = [program, "serve", "--listen", "127.0.0.1:0", "--store", store]
        self.log, self.process, self.url = log, None, None

    def start(self):
        open(self.log, "w").close()
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stderr=open(self.log, "ab"))
        end = time.monotonic() + 120
        while True:
            found = re.search(r"listening on (http:[^,]*),", open(self.log).read())
            if found:
                self.url = found.group(1)
                return
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the collector does not come up: " + open(self.log).read())
            time.sleep(0.05)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def send(self, lines):
        request = urllib.request.Request(self.url + "/v1/reports", "\n".join(lines).encode(), {"Content-Type": "application/x-ndjson"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status == 202

    def ask(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer), answer.headers

    def sums(self):
        document, headers = self.ask("/api/v1/faults?since=1d&limit=1000")
        faults = document["faults"]
        return sum(f["count"] for f in faults), sum(f["total_ns"] for f in faults), headers.get("Stall-Partial")


    def sums_like(self, expected):
        """Asks until it is what is expected, for a while: servers that come back need some seconds."""
        end = time.monotonic() + 90
        found = None
        while found != expected and time.monotonic() < end:
            try:
                found = self.sums()
            except OSError as error:
                found = error
            if found != expected:
                time.sleep(0.5)
        return found


class Sender(threading.Thread):
    """Sends batches until each is acknowledged, as `ship` does."""

    def __init__(self, collector, template, name):
        super().__init__(daemon=True)
        self.collector, self.template, self.prefix = collector, template, name
        self.acknowledged, self.total, self.refusals, self.serial, self.stopping = 0, 0, 0, 0, False

    def batch(self):
        lines, total = [], 0
        for _ in range(20):
            self.serial += 1
            report = dict(self.template)
            now = time.time() - random.randrange(1, 7200)
            # 26 letters of Crockford's base 32.
            report["id"] = "01" + self.prefix + f"{self.serial:014d}" + "0" * (24 - len(self.prefix) - 14)
            for key in ("started_at", "detected_at", "ended_at"):
                report[key] = time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime(now))
            report["duration_ns"] = 250_000_000 + random.randrange(10**9)
            report.pop("repeats", None)
            total += report["duration_ns"]
            lines.append(json.dumps(report))
        return lines, total

    def run(self):
        while not self.stopping:
            lines, total = self.batch()
            while True:
                try:
                    if self.collector.send(lines):
                        break
                except (OSError, urllib.error.URLError):
                    self.refusals += 1
                    time.sleep(0.1)
            self.acknowledged, self.total = self.acknowledged + len(lines), self.total + total


def check(condition, message):
    if not condition:
        raise SystemExit("cluster: " + message)


def main():
    program, directory = sys.argv[1:3]
    rounds = int(sys.argv[3])
    template = json.load(open(sys.argv[4]))
    cluster = Cluster(directory)
    collector = None
    try:
        cluster.start()
        for quorum in (0, 2):
            collector = Collector(program, cluster.address(quorum, f"stalls{quorum}"), directory + "/collector.log")
            collector.start()
            senders = [Sender(collector, template, name) for name in ("AAAA", "BBBB")]
            for sender in senders:
                sender.start()
            for round in range(rounds):
                time.sleep(1)
                victim = cluster.servers[round % 4]
                # In the middle of inserts.
                victim.kill()
                time.sleep(1 if quorum else 2)
                collector.kill()
                collector.start()
                time.sleep(1)
                victim.start()
                victim.wait()
                if round == rounds - 1:
                    cluster.keeper.kill()
                    time.sleep(1)
                    cluster.keeper.start()
            time.sleep(2)
            for sender in senders:
                sender.stopping = True
            for sender in senders:
                sender.join(180)
                check(not sender.is_alive(), "a batch is never acknowledged")
            count, total = sum(s.acknowledged for s in senders), sum(s.total for s in senders)
            # Where one replica was enough, the other may still fetch.
            found = collector.sums_like((count, total, None))
            check(found == (count, total, None), f"acknowledged are {count} stalls of {total} ns, shown are {found}")
            refusals = sum(s.refusals for s in senders)
            print(f"quorum {quorum}: {rounds} rounds, {count} stalls acknowledged, each there once; {refusals} requests refused meanwhile", flush=True)
            for server in cluster.servers[2:]:
                server.kill()
            found = collector.sums()
            check(found[2] == "true" and 0 < found[0] < count, f"of one shard only: {found}")
            print(f"quorum {quorum}: without a shard {found[0]} stalls are shown, as a part", flush=True)
            for server in cluster.servers[2:]:
                server.start()
            for server in cluster.servers[2:]:
                server.wait()
            check(collector.sums_like((count, total, None)) == (count, total, None), "with the shard back not all is there")
            collector.kill()
    finally:
        if collector and collector.process:
            collector.kill()
        cluster.end()


main()
