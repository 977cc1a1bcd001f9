"""Starts servers of ClickHouse for tests: on 127.0.0.1, on free ports, with all that they keep in a directory.

    servers.py DIRECTORY      one server; prints its HTTP port when it answers; ends with its standard input
"""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

USERS = """<yandex>
  <profiles><default><max_memory_usage>4000000000</max_memory_usage></default></profiles>
  <users><default><password></password><networks><ip>127.0.0.1</ip></networks>
    <profile>default</profile><quota>default</quota></default></users>
  <quotas><default></default></quotas>
</yandex>
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class Server:
    """One server of ClickHouse. `extra` are lines of its configuration: a cluster, ZooKeeper, macros."""

    def __init__(self, directory, extra="", ports=None):
        self.directory = directory
        self.http, self.tcp, self.inter = ports or free_ports(3)
        self.process = None
        os.makedirs(directory + "/files", exist_ok=True)
        with open(directory + "/users.xml", "w") as file:
            file.write(USERS)
        with open(directory + "/config.xml", "w") as file:
            file.write(
                f"""<yandex>
  <logger><level>warning</level><log>{directory}/log</log><errorlog>{directory}/errors</errorlog><size>10M</size><count>1</count></logger>
  <http_port>{self.http}</http_port><tcp_port>{self.tcp}</tcp_port><interserver_http_port>{self.inter}</interserver_http_port>
  <interserver_http_host>127.0.0.1</interserver_http_host><listen_host>127.0.0.1</listen_host>
  <path>{directory}/data/</path><tmp_path>{directory}/tmp/</tmp_path><user_files_path>{directory}/files/</user_files_path>
  <users_config>users.xml</users_config><default_profile>default</default_profile><default_database>default</default_database>
  <mark_cache_size>67108864</mark_cache_size><uncompressed_cache_size>0</uncompressed_cache_size>
  {extra}
</yandex>
"""
            )

    def start(self):
        self.process = subprocess.Popen(
            ["clickhouse-server", f"--config-file={self.directory}/config.xml"],
            stdin=subprocess.DEVNULL,
            stdout=open(self.directory + "/out", "ab"),
            stderr=subprocess.STDOUT,
        )

    def wait(self, seconds=60):
        end = time.monotonic() + seconds
        while True:
            try:
                self.ask("SELECT 1")
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("a server of ClickHouse does not come up: " + open(self.directory + "/out").read()[-2000:])
                time.sleep(0.1)

    def ask(self, sql, timeout=60):
        request = urllib.request.Request(f"http://127.0.0.1:{self.http}/?wait_end_of_query=1", data=sql.encode())
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.read().decode()

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def end(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()


if __name__ == "__main__":
    server = Server(sys.argv[1])
    server.start()
    try:
        server.wait()
        print(server.http, flush=True)
        sys.stdin.read()
    finally:
        server.end()
