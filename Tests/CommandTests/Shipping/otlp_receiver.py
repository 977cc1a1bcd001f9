"""An OTLP receiver over HTTP with preset answers, which records what it accepted.

  otlp_receiver.py FOLDER [CERTIFICATE]

FOLDER/port appears when it listens. Each request removes the first line of FOLDER/plan, if there is one, and answers accordingly:

  {"status": 503, "headers": {"Retry-After": "1"}, "body": ""}
  {"close": true}                  no answer
  {"where": "text", "status": 400} only if the body contains the text; then all lines are of this kind, and none is removed

Without a plan it accepts. Each accepted request is a line of FOLDER/accepted: {"path": …, "headers": {…}, "body": {…}}.
"""

import gzip
import http.server
import json
import os
import socket
import ssl
import sys

folder = sys.argv[1]


def plan(body):
    try:
        with open(folder + "/plan") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return {}
    if not lines:
        return {}
    answer = json.loads(lines[0])
    if "where" in answer:
        return next((a for a in map(json.loads, lines) if a["where"] in body), {})
    if not answer.get("stays"):
        with open(folder + "/plan.new", "w") as file:
            file.write("\n".join(lines[1:]))
        os.rename(folder + "/plan.new", folder + "/plan")
    return answer


class Receiver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        answer = plan(body.decode())
        if answer.get("close"):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status = answer.get("status", 200)
        if status == 200:
            entry = {"path": self.path, "headers": dict(self.headers), "body": json.loads(body)}
            with open(folder + "/accepted", "a") as file:
                file.write(json.dumps(entry) + "\n")
        reply = answer.get("body", "{}").encode()
        self.send_response(status)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="otlp"')
        for name, value in answer.get("headers", {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "0"))), Receiver)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
with open(folder + "/port.new", "w") as file:
    file.write(str(server.server_port))
os.rename(folder + "/port.new", folder + "/port")
server.serve_forever()
