"""Servers on SwiftNIO, Hummingbird and Foundation (Tests/LoopServers), with and without the monitor."""
import glob
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time

import servers


class SlowNames:
    """A name server on 127.0.0.1 that answers each query with "no such name" after a delay: 600 ms for ms600.trial."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            question, client = self.socket.recvfrom(512)
            label = question[13:13 + question[12]].decode("ascii", "replace")
            delay = int(label[2:]) / 1000 if label[2:].isdigit() else 0
            # The same query, marked as the answer of a recursive server: NXDOMAIN.
            answer = question[:2] + struct.pack(">H", 0x8183) + question[4:6] + bytes(6) + question[12:]
            threading.Timer(delay, self.socket.sendto, (answer, client)).start()


names = None


def can_answer_names():
    """Whether programs that query the server above can be started: this needs root, for the port and for their own resolv.conf."""
    global names
    if names is None:
        try:
            names = SlowNames() if os.getuid() == 0 and shutil.which("unshare") else False
        except OSError:
            names = False
    return bool(names)


class LoopServer(servers.Told):
    def __init__(self, programs, kind, is_inside):
        self.is_inside, self.directory = is_inside, tempfile.mkdtemp(prefix="loop-server-")
        self.reports = f"{self.directory}/reports"
        command = [f"{programs}/loop-server" + ("-watched" if is_inside else ""), kind, self.reports]
        if can_answer_names():
            with open(f"{self.directory}/resolv.conf", "w") as file:
                file.write("nameserver 127.0.0.1\n")
            mount = f'mount --bind {self.directory}/resolv.conf /etc/resolv.conf && exec "$@"'
            command = ["unshare", "-m", "sh", "-c", mount, "sh"] + command
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.pid, self.port = self.process.pid, int(self.process.stdout.readline().split()[1])
        # The monitor knows the loop after two waits.
        for _ in range(5):
            self.ask("sleep 1")
            time.sleep(0.05)

    def watchdog(self):
        """The thread whose lateness counts."""
        for path in glob.glob(f"/proc/{self.pid}/task/*/comm"):
            with open(path) as file:
                if file.read().strip() == "stall-watchdog":
                    return int(path.split("/")[4])
        return self.pid

    def play(self, order):
        if order == "BURSTS":
            for _ in range(6):
                self.burst(400)
                time.sleep(0.25)
            return None
        return super().play(order)

    def burst(self, requests):
        """Each of some clients sends all of its requests at once, then reads the answers."""
        request = b"GET / HTTP/1.1\r\nHost: trial\r\n\r\n"
        clients = [servers.connected(self.port) for _ in range(8)]
        for client in clients:
            client.sendall(request * (requests // len(clients)))
        for client in clients:
            answers = b""
            while answers.count(b"HTTP/1.1") < requests // len(clients):
                piece = client.recv(1 << 16)
                if not piece:
                    break
                answers += piece
            client.close()

    def written(self):
        """The reports in its directory, by their files."""
        reports = {}
        for path in glob.glob(f"{self.reports}/*.json"):
            try:
                with open(path) as file:
                    report = json.load(file)
            except (OSError, ValueError):
                continue
            if report.get("schema", "").startswith("stall-report"):
                reports[path] = report
        return reports

    def reports_since(self, before):
        """Waits a short time until all begun reports are closed."""
        for _ in range(30):
            time.sleep(0.1)
            reports = [report for path, report in self.written().items() if path not in before]
            if _ > 3 and all(report["state"] != "ongoing" for report in reports):
                break
        return reports

    def load(self, seconds):
        subprocess.run(
            ["wrk", "-t1", "-c32", f"-d{seconds}s", f"http://127.0.0.1:{self.port}/"], stdout=subprocess.DEVNULL, check=True)

    def stop(self):
        super().stop()
        shutil.rmtree(self.directory, ignore_errors=True)
