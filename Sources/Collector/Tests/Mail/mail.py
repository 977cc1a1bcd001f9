"""Alerts by mail, sent to real SMTP servers: with TLS from the beginning, by STARTTLS, and to those that must get none.

  mail.py COLLECTOR REPORT

COLLECTOR is the program, REPORT the file of a stall report. Needs python3-aiosmtpd and openssl. Ends with 0, or with the first thing that is
not as it should be.
"""
import email
import email.policy
import email.utils
import json
import logging
import os
import re
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings

# aiosmtpd's advice for servers that last longer than a test.
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

PASSWORD = "pass word\u00e9"
HOSTILE = "na\u00efve\r\nBcc: all@example.com\r\n\r\n.\r\nMAIL FROM:<x@example.com>"


# An address of this machine that is not taken for it: only 127.0.0.1 may be spoken to without TLS.
HERE, AWAY = "127.0.0.1", "127.0.0.2"


def check(condition, text):
    if not condition:
        sys.exit(text)


class Mailbox:
    """What a server accepted."""

    def __init__(self):
        self.mails = []

    async def handle_DATA(self, server, session, envelope):
        self.mails.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        return "250 OK"


def authenticate(server, session, envelope, mechanism, data):
    return AuthResult(success=(data.login, data.password) == (b"stalls@shop", PASSWORD.encode()), handled=False)


def free_port(host):
    with socket.socket() as place:
        place.bind((host, 0))
        return place.getsockname()[1]


def server(host, context=None, implicit=None, login=True):
    """A running server, with its mails and its port."""
    box, port = Mailbox(), free_port(host)
    options = dict(hostname=host, port=port)
    if context:
        options.update(tls_context=context, require_starttls=True)
    if login:
        options.update(authenticator=authenticate, auth_required=True, auth_require_tls=implicit is None)
    controller = Controller(box, ssl_context=implicit, **options)
    controller.start()
    return controller, box, port


def report(template, index):
    made = json.loads(json.dumps(template))
    made["id"] = f"01M8{index:022d}"
    stamp = lambda moment: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + ".000000000Z"
    made["started_at"] = made["detected_at"] = stamp(time.time() - 60)
    made["ended_at"] = stamp(time.time() - 59)
    made["service"] = {"name": HOSTILE, "version": "1"}
    return made


def rules(folder, ports):
    receivers = [
        f"{{mail: tls@example.com, from: stalls@example.com, server: 'smtps://stalls%40shop@{AWAY}:{ports['tls']}', passwordFile: {folder}/password}}",
        f"{{mail: starttls@example.com, server: 'smtp://stalls%40shop@{AWAY}:{ports['starttls']}', passwordFile: {folder}/password}}",
        f"{{mail: relay@example.com, server: 'smtp://127.0.0.1:{ports['relay']}'}}",
        f"{{mail: stripped@example.com, server: 'smtp://{AWAY}:{ports['stripped']}'}}",
        f"{{mail: denied@example.com, server: 'smtps://other@{AWAY}:{ports['tls']}', passwordFile: {folder}/password}}",
        f"{{mail: silent@example.com, server: 'smtp://127.0.0.1:{ports['silent']}'}}",
    ]
    return "rules:\n  - {name: often, when: rate, stalls: 1, within: 1h}\nreceivers:\n" + "".join(f"  - {one}\n" for one in receivers)


def main(program, path):
    with tempfile.TemporaryDirectory() as folder:
        chain, key = folder + "/chain.pem", folder + "/key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=mail", "-addext",
             "subjectAltName=IP:" + AWAY, "-keyout", key, "-out", chain], check=True, capture_output=True)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(chain, key)
        open(folder + "/password", "w").write(PASSWORD + "\n")
        # Takes connections, and says nothing.
        silent = socket.create_server(("127.0.0.1", 0))
        servers = {
            "tls": server(AWAY, implicit=context), "starttls": server(AWAY, context=context), "relay": server(HERE, login=False),
            "stripped": server(AWAY, login=False),
        }
        ports = {name: one[2] for name, one in servers.items()} | {"silent": silent.getsockname()[1]}
        open(folder + "/alerts.yaml", "w").write(rules(folder, ports))
        log = open(folder + "/log", "w")
        collector = subprocess.Popen(
            [program, "serve", "--listen", "127.0.0.1:0", "--store", folder + "/stalls.db", "--alerts", folder + "/alerts.yaml"],
            stderr=log, env=os.environ | {"CURL_CA_BUNDLE": chain})
        try:
            told = lambda: open(folder + "/log").read()
            wait(lambda: "listening on" in told(), told)
            address = re.search(r"listening on (http://[\d.:]+)", told())[1]
            template = json.load(open(path))
            body = "".join(json.dumps(report(template, index)) + "\n" for index in range(3)).encode()
            urllib.request.urlopen(urllib.request.Request(address + "/v1/reports", body, {"Content-Type": "application/x-ndjson"}))
            boxes = {name: one[1] for name, one in servers.items()}
            wait(lambda: all(boxes[name].mails for name in ["tls", "starttls", "relay"]) and told().count("could not be told") >= 3, told)
            received(boxes)
            check(not boxes["stripped"].mails, "a mail was sent without TLS")
            refused(told())
        finally:
            collector.kill()
            collector.wait()
            for controller, _, _ in servers.values():
                controller.stop()
    print("By TLS, by STARTTLS and to this machine's relay: one mail each; none without TLS, with a wrong name, or to a silent server.")


def wait(condition, log):
    end = time.monotonic() + 180
    while not condition():
        check(time.monotonic() < end, "it did not come to that: " + log())
        time.sleep(0.2)


def received(boxes):
    for name, sender in [("tls", "stalls@example.com"), ("starttls", None), ("relay", None)]:
        check(len(boxes[name].mails) == 1, f"{name} has {len(boxes[name].mails)} mails")
        by, to, content = boxes[name].mails[0]
        check(to == [name + "@example.com"], f"{name}: to {to}")
        check(by == sender if sender else by.startswith("stall-collector@"), f"{name}: from {by}")
        check(b"\n" not in content.replace(b"\r\n", b""), f"{name}: a line does not end by CR and LF")
        mail = email.message_from_bytes(content, policy=email.policy.default)
        check(not mail.defects and mail["From"] == by and mail["To"] == to[0], f"{name}: {mail.defects} {mail.items()}")
        check(mail["Bcc"] is None and len(mail.keys()) == len(set(mail.keys())) == 9, f"{name}: {mail.keys()}")
        check("Stall alert: often: na\u00efve" in mail["Subject"] and "3 stalls" in mail.get_content(), f"{name}: {mail}")
        age = time.time() - email.utils.parsedate_to_datetime(mail["Date"]).timestamp()
        check(-5 < age < 300 and re.fullmatch(r"<[0-9a-f]{32}@[\w.-]+>", mail["Message-ID"]), f"{name}: {mail['Date']} {mail['Message-ID']}")


def refused(log):
    for name, reason in [("stripped", "Requested SSL level failed"), ("denied", r"Login denied \(535\)"), ("silent", "Timeout was reached")]:
        check(re.search(f"error={reason} receiver=mail {name}@.*could not be told", log), f"{name}: {log}")
    check("pass word" not in log, "the log has the password")


main(*sys.argv[1:])
