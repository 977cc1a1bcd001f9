"""Third-party servers as targets of the trials: each class starts one in its own directory, makes it stall, and knows when it did.

`play(order)` returns the begin and the end of the stall on CLOCK_MONOTONIC in nanoseconds, or None for what is none.
"""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

LOAD_SECONDS = int(os.environ.get("LOAD_SECONDS", "10"))


class Server:
    needs = []
    scenarios = []
    # A client runs no loop, and a whole server is watched at once only if requested.
    has_loop = True

    @classmethod
    def missing(cls):
        return [tool for tool in cls.needs if not shutil.which(tool, path=os.environ["PATH"] + ":/usr/sbin")]

    def watched(self, order):
        """Arguments of `watch`."""
        return [str(self.pid)]

    def play(self, order):
        name, _, number = order.partition(" ")
        if name == "STOP":
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(int(number) / 1000)
            os.kill(self.pid, signal.SIGCONT)
        elif name == "IDLE":
            time.sleep(int(number) / 1000)
        elif name == "LOAD":
            self.load(LOAD_SECONDS)
        else:
            return self.stall(name, number)
        return None

    def stop(self):
        # SIGINT: then postgres, too, ends without waiting for its sessions.
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def connected(port):
    for _ in range(600):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except OSError:
            time.sleep(0.05)
    raise TimeoutError(f"nobody listens on {port}")


class Told(Server):
    """A program that stalls by orders on standard input: NAME MS, answered by DID NAME BEGIN END."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.process.stdout.readline()

    def ask(self, order):
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def stall(self, name, number):
        if name == "exec":
            self.ask(f"exec {number}")
            # Until its new loop is known.
            time.sleep(1.5)
            return None
        if name == "move":
            self.ask("move")
            # As long as it may be one callout, it is a stall of the first loop.
            for _ in range(int(number) // 100):
                time.sleep(0.1)
                self.ask("counts")
            return None
        words = self.ask(f"{name} {number}".strip())
        return int(words[-3 if words[-1] in ("WHOLE", "CUT") else -2]), int(words[-2 if words[-1] in ("WHOLE", "CUT") else -1])

    def stop(self):
        self.process.kill()
        self.process.wait()
        try:
            os.unlink(f"/tmp/perf-{self.pid}.map")
        except OSError:
            pass


class Redis(Server):
    needs = ["redis-server", "redis-benchmark"]
    scenarios = [
        ("sleep 600", {"blocked"}), ("sleep 330", {"blocked"}), ("sleep 150", {"none"}), ("lua 80000000", {"blocked"}),
        ("populate 2000000", {"blocked"}), ("keys 2000000", {"blocked"}), ("STOP 800", {"none"}), ("IDLE 3000", {"none"}),
        ("LOAD", {"none"}),
    ]

    def __init__(self):
        self.directory, self.port = tempfile.mkdtemp(prefix="redis-"), free_port()
        self.process = subprocess.Popen(
            ["redis-server", "--port", str(self.port), "--save", "", "--dir", self.directory, "--enable-debug-command", "yes"],
            stdout=subprocess.DEVNULL)
        self.pid = self.process.pid
        self.client = connected(self.port)
        self.ask("CONFIG SET busy-reply-threshold 60000")

    def ask(self, line):
        begin = time.monotonic_ns()
        self.client.sendall(line.encode() + b"\r\n")
        # A command's answer is one line, except for KEYS, which answers with an array: its first line comes when it has ended.
        answer = self.client.recv(1 << 16)
        end = time.monotonic_ns()
        self.client.settimeout(0.2)
        try:
            while answer[:1] == b"*" and self.client.recv(1 << 20):
                pass
        except TimeoutError:
            pass
        self.client.settimeout(60)
        return begin, end

    def stall(self, name, number):
        if name == "sleep":
            return self.ask(f"DEBUG SLEEP {int(number) / 1000}")
        if name == "lua":
            loop = f"for i = 1, {number} do end"
            return self.ask(f'EVAL "{loop}" 0')
        if name == "populate":
            self.ask("FLUSHALL ASYNC")
            time.sleep(0.5)
            return self.ask(f"DEBUG POPULATE {number}")
        return self.ask("KEYS none*")

    def load(self, seconds):
        subprocess.run(
            ["timeout", str(seconds), "redis-benchmark", "-p", str(self.port), "-q", "-l", "-P", "4", "-t", "set,get,lpush"],
            stdout=subprocess.DEVNULL)


class Nginx(Server):
    """Its access log is a FIFO: while that is full, a worker blocks in write(2)."""
    needs = ["nginx", "wrk", "pgrep"]
    scenarios = [
        ("log 600", {"blocked"}), ("log 330", {"blocked"}), ("log 150", {"none"}), ("STOP 800", {"none"}), ("IDLE 3000", {"none"}),
        ("LOAD", {"none"}),
    ]

    def __init__(self):
        self.directory, self.port = tempfile.mkdtemp(prefix="nginx-"), free_port()
        os.chmod(self.directory, 0o755)
        log = f"{self.directory}/access"
        os.mkfifo(log)
        os.chmod(log, 0o666)
        self.log = os.open(log, os.O_RDWR | os.O_NONBLOCK)
        self.drains = True
        threading.Thread(target=self.drain, daemon=True).start()
        with open(f"{self.directory}/conf", "w") as file:
            file.write(
                f"daemon off; worker_processes 1; pid {self.directory}/pid; error_log {self.directory}/error; events {{ }}\n"
                f"http {{ access_log {log}; server {{ listen 127.0.0.1:{self.port}; location / {{ return 200 ok; }} }} }}\n")
        self.process = subprocess.Popen(["/usr/sbin/nginx", "-c", f"{self.directory}/conf"], stderr=subprocess.DEVNULL)
        connected(self.port).close()
        # It listens before it has started its worker.
        children, patience = [], 100
        while not children and patience > 0:
            time.sleep(0.05)
            patience -= 1
            children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True).stdout.split()
        self.pid = int(children[0])

    def drain(self):
        while True:
            try:
                if not self.drains or not os.read(self.log, 1 << 16):
                    time.sleep(0.005)
            except BlockingIOError:
                time.sleep(0.005)

    def stall(self, name, number):
        client = connected(self.port)
        self.drains = False
        time.sleep(0.05)
        try:
            while True:
                os.write(self.log, b"-" * 4096)
        except BlockingIOError:
            pass
        begin = time.monotonic_ns()
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        time.sleep(int(number) / 1000)
        end, self.drains = time.monotonic_ns(), True
        client.close()
        return begin, end

    def load(self, seconds):
        subprocess.run(
            ["wrk", "-t1", "-c32", f"-d{seconds}s", f"http://127.0.0.1:{self.port}/"], stdout=subprocess.DEVNULL, check=True)


class Postgres(Server):
    """One session's process: its loop waits for the client, and a query is one turn, whatever the query waits for."""
    directory_of_tools = "/usr/lib/postgresql"
    needs = ["setpriv", "psql", "pgbench"]
    scenarios = [
        ("sleep 600", {"blocked"}), ("sleep 330", {"blocked"}), ("sleep 150", {"none"}), ("compute 3000000", {"blocked"}),
        ("lock 600", {"blocked"}), ("STOP 800", {"none"}), ("IDLE 3000", {"none"}), ("LOAD", {"none"}),
    ]

    @classmethod
    def missing(cls):
        return super().missing() + ([] if os.path.isdir(cls.directory_of_tools) and os.getuid() == 0 else ["postgres (as root)"])

    def __init__(self):
        self.directory, self.port = tempfile.mkdtemp(prefix="postgres-"), free_port()
        version = max(os.listdir(self.directory_of_tools), key=float)
        self.tools = f"{self.directory_of_tools}/{version}/bin"
        shutil.chown(self.directory, "postgres", "postgres")
        self.user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        data = f"{self.directory}/data"
        subprocess.run(self.user + [f"{self.tools}/initdb", "-D", data, "-A", "trust", "-N"], stdout=subprocess.DEVNULL, check=True)
        self.process = subprocess.Popen(
            self.user + [f"{self.tools}/postgres", "-D", data, "-k", self.directory, "-p", str(self.port)], stderr=subprocess.DEVNULL)
        connected(self.port).close()
        self.session, self.other = self.connect(), self.connect()
        self.pid = int(self.ask(self.session, "SELECT pg_backend_pid();"))
        self.bench("-i", "-q")

    def connect(self):
        for _ in range(100):
            client = subprocess.Popen(
                ["psql", "-h", self.directory, "-p", str(self.port), "-U", "postgres", "-XqAt"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            if self.ask(client, "SELECT 1;") == "1":
                return client
            time.sleep(0.1)
        raise TimeoutError("no session with postgres")

    @staticmethod
    def ask(client, query):
        try:
            client.stdin.write(query + "\n")
            client.stdin.flush()
        except BrokenPipeError:
            return None
        return client.stdout.readline().strip()

    def stall(self, name, number):
        release = None
        if name == "lock":
            self.ask(self.other, "BEGIN; SELECT pg_advisory_xact_lock(1);")
            release = threading.Timer(int(number) / 1000, lambda: self.ask(self.other, "COMMIT; SELECT 1;"))
        begin = time.monotonic_ns()
        if release:
            release.start()
        self.ask(self.session, {
            "sleep": f"SELECT pg_sleep({int(number or 0) / 1000});",
            "compute": f"SELECT count(*) FROM generate_series(1, {number}) AS i WHERE sqrt(i) < 0;",
            "lock": "BEGIN; SELECT pg_advisory_xact_lock(1); COMMIT;",
        }[name])
        end = time.monotonic_ns()
        if release:
            release.join()
        return begin, end

    def watched(self, order):
        return [str(self.process.pid), "--follow"] if order == "LOAD" else super().watched(order)

    def bench(self, *options):
        subprocess.run(
            ["pgbench", "-h", self.directory, "-p", str(self.port), "-U", "postgres", *options, "postgres"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)

    def load(self, seconds):
        self.bench("-n", "-S", "-c", "4", "-T", str(seconds))

    def stop(self):
        for client in (self.session, self.other):
            client.kill()
        super().stop()


class Client(Server):
    """A program that sometimes sends a request, over one connection or by one line of input, and computes in between."""
    has_loop = False
    scenarios = [("IDLE 6000", {"none"})]

    def __init__(self, command):
        self.directory = tempfile.mkdtemp(prefix="client-")
        listener = socket.create_server(("127.0.0.1", 0))
        self.process = subprocess.Popen(
            [word.replace("PORT", str(listener.getsockname()[1])) for word in command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.pid = self.process.pid
        threading.Thread(target=self.answer, args=(listener,), daemon=True).start()

    def answer(self, listener):
        connection = listener.accept()[0]
        while connection.recv(100):
            time.sleep(0.15)
            connection.sendall(b"answer")


PYTHON_CLIENT = """
import socket, time
server = socket.create_connection(("127.0.0.1", PORT), timeout=5)
while True:
    for _ in range(4):
        server.sendall(b"question")
        server.recv(100)
    end = time.monotonic() + 0.6
    while time.monotonic() < end: pass
"""
SHELL_CLIENT = """
while :; do
    for i in 1 2 3 4; do read -t 0.15; done
    end=$((${EPOCHREALTIME/./} + 600000))
    while ((${EPOCHREALTIME/./} < end)); do :; done
done
"""
