"""Answers ClickHouse's HTTP interface from chdb, today's ClickHouse as a library: the check that tables and questions are in today's dialect.

    chdb_server.py DIRECTORY      prints its port when it listens; ends with its standard input
"""

import http.server
import re
import sys
import threading

from chdb import session

lock = threading.Lock()
# What a server takes from each request's address.
settings = ["max_query_size=67108864", "max_ast_elements=2000000", "max_expanded_ast_elements=2000000"]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        statement = self.rfile.read(int(self.headers["Content-Length"])).decode()
        try:
            with lock:
                status, answer = 200, database.query(statement, "TabSeparated").bytes() or b""
        except Exception as error:  # chdb has one kind for all that ClickHouse refuses.
            number = re.search(r"Code: \d+.*", str(error), re.DOTALL)
            status, answer = 500, (number.group() if number else str(error)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


database = session.Session(sys.argv[1])
for setting in settings:
    database.query("SET " + setting)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
