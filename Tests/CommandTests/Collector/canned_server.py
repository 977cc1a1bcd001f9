"""Answers every request with the bytes of FOLDER/answer, and writes the first line of each request to FOLDER/asked.

  canned_server.py FOLDER

FOLDER/port appears when it listens.
"""
import os
import socket
import sys

folder = sys.argv[1]
listener = socket.create_server(("127.0.0.1", 0))
with open(folder + "/port.new", "w") as file:
    file.write(str(listener.getsockname()[1]))
os.rename(folder + "/port.new", folder + "/port")
while True:
    connection, _ = listener.accept()
    with connection:
        request = b""
        while b"\r\n\r\n" not in request:
            part = connection.recv(65536)
            if not part:
                break
            request += part
        with open(folder + "/asked", "ab") as file:
            file.write(request)
        with open(folder + "/answer", "rb") as file:
            connection.sendall(file.read())
