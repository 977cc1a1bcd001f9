"""Looks at the collector's pages with a real browser: every page, every filter, hostile names, the keyboard, dark colours, narrow screens, and the live
page across a restart.

  browser.py COLLECTOR REPORT

COLLECTOR is the program, REPORT the file of a stall report that is made many of. Needs chromium, chromium-driver and python3-selenium.
Ends with 0, or with the first thing that is not as it should be.
"""
import http.server
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

HOSTILE = [
    "<script>window.harmed=1</script>", "<img src=x onerror=window.harmed=1>", "\"><b>x</b>", "' onmouseover='window.harmed=1",
    "{{#rows}}{{{x}}}", "</textarea></title></style><svg onload=window.harmed=1>", "javascript:window.harmed=1", "&lt;b&gt;&#60;",
    "\u202e\u2066gnirts", "\x1b[31m\r\n\x00", "%3Cb%3E%00", "=cmd|' /C calc'!A0", "a" * 3000, "\u0301" * 200, "\U0001f4a9", "../../etc/passwd",
    # A letter that joins with what follows it, and an accent.
    "\u0d4e<img src=x onerror=window.harmed=1>\u0d4e</script><b>x", "\"\u0301 onmouseover=window.harmed=1",
]
AXE = open(os.environ["AXE"]).read() if os.environ.get("AXE") else None
random.seed(16)
ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


class Collector:
    """The program on a port that stays the same when it is started again."""

    def __init__(self, program, folder):
        self.program, self.folder, self.port, self.process = program, folder, 0, None
        self.start()

    def start(self):
        log = open(self.folder + "/log", "w")
        self.process = subprocess.Popen(
            [self.program, "serve", "--listen", f"127.0.0.1:{self.port}", "--store", self.folder + "/stalls.db"], stderr=log
        )
        for _ in range(600):
            found = re.search(r"listening on (http://[\d.]+:(\d+))", open(self.folder + "/log").read())
            if found:
                self.address, self.port = found[1], int(found[2])
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        sys.exit("the collector does not come up: " + open(self.folder + "/log").read())

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def post(self, reports):
        for start in range(0, len(reports), 100):
            self.post_together(reports[start:start + 100])

    def post_together(self, reports):
        body = "".join(json.dumps(report) + "\n" for report in reports).encode()
        request = urllib.request.Request(self.address + "/v1/reports", body, {"Content-Type": "application/x-ndjson"})
        answer = json.load(urllib.request.urlopen(request))
        check(answer["refused"] == 0, f"reports were refused: {answer}")


def check(condition, text):
    if not condition:
        sys.exit(text)


def report(template, name, seconds_ago):
    made = json.loads(json.dumps(template))
    made["id"] = "01M8" + "".join(random.choice(ALPHABET) for _ in range(22))
    began = time.time() - seconds_ago
    stamp = lambda moment: time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment)) + ".000000000Z"
    made["started_at"] = made["detected_at"] = stamp(began)
    made["ended_at"] = stamp(began + 1)
    made["culprit"]["function"] = made["host"]["name"] = made["watched"]["label"] = name
    made["service"] = {"name": name, "version": name}
    made["cause"]["summary"] = name
    made["metadata"] = {"name": name}
    made["fingerprint"] = "v2:" + "".join(random.choice("0123456789abcdef") for _ in range(16))
    # A symbolicated report has its former fingerprint, which would make all of them one fault.
    made.pop("aliases", None)
    for stack in made["stacks"]:
        for frame in stack.get("frames", []):
            frame["function"] = name
    return made


def names(count):
    yield from HOSTILE
    for _ in range(count - len(HOSTILE)):
        yield "".join(random.choice([random.choice(HOSTILE)[:40], chr(random.randrange(1, 0x2FF)), "\u200b<"]) for _ in range(4))


def quiet(browser, where):
    """No script of a name ran, nothing was blocked that a page needs, and no name became markup."""
    check(browser.execute_script("return window.harmed === undefined"), f"{where}: a name was run")
    marks = browser.execute_script("return document.querySelectorAll('main b, main img, main script:not([src]), iframe').length")
    check(marks == 0, f"{where}: a name became markup")
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    check(not severe, f"{where}: {severe[:1]}")


def labelled(browser, where):
    """A language, a title, and a name for each control and link; with AXE, the file of axe-core, whatever that finds."""
    lacking = browser.execute_script("""
        const lacking = [];
        if (!document.documentElement.lang || !document.title) lacking.push("language or title");
        for (const control of document.querySelectorAll("input, select, textarea"))
          if (!control.labels.length && !control.ariaLabel && control.type !== "hidden") lacking.push(control.outerHTML.slice(0, 80));
        for (const one of document.querySelectorAll("a, button, th"))
          if (!one.textContent.trim() && !one.ariaLabel && one.tagName !== "TH") lacking.push(one.outerHTML.slice(0, 80));
        return lacking;
    """)
    check(not lacking, f"{where}: without a name: {lacking[:3]}")
    if not AXE:
        return
    browser.execute_script(AXE)
    found = browser.execute_async_script("""
        const done = arguments[arguments.length - 1];
        axe.run().then(result => done(result.violations.map(one => one.id + ": " + one.nodes[0].html.slice(0, 200))), error => done([String(error)]));
    """)
    check(not found, f"{where}: axe finds {found}")


def rows(browser, selector="tbody tr"):
    return browser.find_elements(By.CSS_SELECTOR, selector)


def pages(browser, collector):
    browser.get(collector.address + "/?since=7d&limit=1000")
    check(len(rows(browser)) > 900, f"the first page shows {len(rows(browser))} faults of 1000: {browser.page_source[:600]}")
    quiet(browser, "/")
    links = [link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, "tbody a")]
    # Of a thousand rows axe needs minutes.
    browser.get(collector.address + "/?since=7d&limit=50")
    labelled(browser, "/")
    for link in links[:12] + random.sample(links, 8):
        browser.get(link)
        check(rows(browser), f"{link} is empty: {browser.page_source[:600]}")
        quiet(browser, link), labelled(browser, link)
        report_link = browser.find_element(By.CSS_SELECTOR, "tbody a").get_attribute("href")
        flame = browser.find_element(By.LINK_TEXT, "Flame graph").get_attribute("href")
        for inner in [report_link, flame]:
            browser.get(inner)
            quiet(browser, inner), labelled(browser, inner)
        sandwich(browser, flame)
        exported = re.sub(r"/faults/([^?/]*).*", r"/api/v1/faults/\1/export/html", link)
        browser.get(exported)
        quiet(browser, exported)
        check(rows(browser, "#graph .box"), f"{exported} shows no graph: its script was not run")


def sandwich(browser, where):
    """By the keyboard alone: to a call, to its sandwich, and back."""
    focus = lambda: browser.switch_to.active_element
    count = len(rows(browser, ".box"))
    browser.find_element(By.CSS_SELECTOR, "#graph .box").send_keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    focus().send_keys(Keys.ARROW_DOWN)
    name = focus().text
    focus().send_keys(Keys.SHIFT + Keys.TAB)
    check(focus().get_attribute("id") == "sandwich", f"{where}: before the graph is {focus().get_attribute('outerHTML')[:80]}")
    focus().send_keys(Keys.ENTER)
    check(browser.find_element(By.CSS_SELECTOR, ".centre").text == name, f"{where}: the sandwich is not that of {name[:40]}")
    check(focus().get_attribute("aria-pressed") == "true", f"{where}: the button is not pressed")
    browser.find_element(By.CSS_SELECTOR, "#functions summary").click()
    check(rows(browser, "#functions tbody tr"), f"{where}: no functions")
    quiet(browser, where), labelled(browser, where + ", sandwich")
    browser.find_element(By.CSS_SELECTOR, "#functions tbody button").click()
    check("centre" in focus().get_attribute("class"), f"{where}: a function of the table is not shown")
    browser.find_element(By.ID, "reset").click()
    check(len(rows(browser, ".box")) == count, f"{where}: the whole graph does not come back")


def dark(browser, collector):
    """The pages in dark colours and on a narrow screen: nothing for axe to find, and nothing beyond the screen's edge."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    browser.get(collector.address + "/?since=7d&limit=5")
    fault = browser.find_element(By.CSS_SELECTOR, "tbody a").get_attribute("href")
    flame = fault.replace("?", "/flame?")
    for where in ["/?since=7d&limit=5", "/compare", "/timeline", "/live?limit=5", fault, flame, flame + "&before-since=14d"]:
        url = where if where.startswith("http") else collector.address + where
        for width in [1300, 400]:
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
            browser.get(url)
            quiet(browser, url), labelled(browser, url)
            over = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
            check(over <= 0, f"{url}: {over} pixels too wide for {width}")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def filters(browser, collector):
    for name in ["service", "release", "host", "verdict"]:
        browser.get(collector.address + "/?since=7d")
        select = Select(browser.find_element(By.NAME, name))
        check(len(select.options) > 1, f"there is nothing to choose as {name}")
        select.select_by_index(1)
        browser.find_element(By.CSS_SELECTOR, ".filters button").click()
        check(f"{name}=" in browser.current_url and rows(browser), f"the filter {name} finds nothing: {browser.current_url}")
        quiet(browser, browser.current_url)
    for text, finds in [("<script>", True), ("%", True), ("nowhere-to-be-found", False)]:
        browser.get(collector.address + "/?since=7d")
        browser.find_element(By.NAME, "text").send_keys(text + "\n")
        WebDriverWait(browser, 60).until(lambda it: "text=" in it.current_url)
        check(bool(rows(browser)) == finds, f"the filter of functions, {text}: {len(rows(browser))} rows")
        quiet(browser, browser.current_url)


def compare(browser, collector):
    browser.get(collector.address + "/compare?since=7d")
    quiet(browser, "/compare"), labelled(browser, "/compare")
    for name, index in [("before", 1), ("after", 2)]:
        Select(browser.find_element(By.NAME, name)).select_by_index(index)
    browser.find_element(By.CSS_SELECTOR, ".filters button").click()
    WebDriverWait(browser, 60).until(lambda it: "after=" in it.current_url)
    check(len(rows(browser)) > 1, f"two releases have no faults: {browser.current_url}")
    quiet(browser, browser.current_url), labelled(browser, browser.current_url)
    browser.find_element(By.LINK_TEXT, "Flame graph of the difference").click()
    WebDriverWait(browser, 60).until(lambda it: "/flame?" in it.current_url)
    check(len(rows(browser, ".box")) > 2 and " → " in browser.find_element(By.TAG_NAME, "h1").text, f"no difference: {browser.current_url}")
    quiet(browser, browser.current_url), labelled(browser, browser.current_url)
    browser.get(collector.address + "/compare?since=1h")
    browser.find_element(By.NAME, "before-since").send_keys("1d\n")
    WebDriverWait(browser, 60).until(lambda it: "before-since=1d" in it.current_url)
    check(len(rows(browser)) > 1, f"two times have no faults: {browser.current_url}")


def timeline(browser, collector):
    browser.get(collector.address + "/timeline?since=7d")
    quiet(browser, "/timeline"), labelled(browser, "/timeline")
    Select(browser.find_element(By.NAME, "host")).select_by_index(1)
    browser.find_element(By.CSS_SELECTOR, ".filters button").click()
    WebDriverWait(browser, 60).until(lambda it: re.search("host=[^&]", it.current_url))
    check(rows(browser), f"a host has no loops: {browser.current_url}")
    quiet(browser, browser.current_url), labelled(browser, browser.current_url)


def keyboard(browser, collector):
    """The first key leads over the header to the content, and each control can be seen when it has the focus."""
    browser.get(collector.address + "/?since=7d")
    focus = lambda: browser.switch_to.active_element
    browser.find_element(By.TAG_NAME, "body").send_keys(Keys.TAB)
    check(focus().get_attribute("class") == "skip", f"the first stop is {focus().get_attribute('outerHTML')[:80]}")
    focus().send_keys(Keys.ENTER)
    check(focus().get_attribute("id") == "main", "the link to the content does not lead there")
    focus().send_keys(Keys.TAB)
    check(focus().get_attribute("name") == "since", f"behind the header comes {focus().get_attribute('outerHTML')[:80]}")
    style = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    check(style != "none", "who has the focus cannot be seen")


def answer_unavailable(port):
    """Answers one request as a proxy does whose server is away."""
    class Unavailable(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_error(502)

    with http.server.HTTPServer(("127.0.0.1", port), Unavailable) as server:
        server.timeout = 60
        server.handle_request()


def live(browser, collector, template):
    browser.get(collector.address + "/live?limit=1")
    state = lambda it: it.find_element(By.ID, "state").text
    WebDriverWait(browser, 60).until(lambda it: state(it).startswith("Connected"))
    before = len(rows(browser, "#stalls tr"))
    collector.post([report(template, name, 0) for name in HOSTILE])
    count = lambda it: len(rows(it, "#stalls tr.new"))
    WebDriverWait(browser, 60).until(lambda it: count(it) == len(HOSTILE))
    quiet(browser, "/live"), labelled(browser, "/live")
    collector.kill()
    WebDriverWait(browser, 60).until(lambda it: "cannot be reached" in state(it))
    # A browser itself does not try again after such an answer.
    answer_unavailable(collector.port)
    collector.start()
    collector.post([report(template, "after the cut", 0)])
    WebDriverWait(browser, 120).until(lambda it: count(it) == len(HOSTILE) + 1)
    check(len(rows(browser, "#stalls tr")) == before + len(HOSTILE) + 1, "a stall is shown twice")
    check("after the cut" in rows(browser, "#stalls tr")[0].text, "the latest is not on top")
    ended = report(template, "it ends", 0)
    ongoing = dict(ended, state="ongoing", duration_ns=300_000_000)
    ongoing.pop("ended_at", None)
    collector.post([ongoing])
    WebDriverWait(browser, 60).until(lambda it: "at least 300ms" in rows(it, "#stalls tr")[0].text)
    total = len(rows(browser, "#stalls tr"))
    collector.post([ended])
    WebDriverWait(browser, 60).until(lambda it: "at least" not in rows(it, "#stalls tr")[0].text)
    check(len(rows(browser, "#stalls tr")) == total, "a stall that ended is shown twice")
    browser.get(collector.address + "/live?limit=1&text=a%2Bb%26c")
    WebDriverWait(browser, 60).until(lambda it: state(it).startswith("Connected"))
    collector.post([report(template, name, 0) for name in ["left out", "shown: A+B&C"]])
    WebDriverWait(browser, 60).until(lambda it: count(it) > 0)
    check(count(browser) == 1 and "shown: " in rows(browser, "#stalls tr")[0].text, "the live page shows what its filter leaves out")


def main(program, path):
    template = json.load(open(path))
    options = webdriver.ChromeOptions()
    for option in ["--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1300,900"]:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory() as folder:
        collector = Collector(program, folder)
        browser = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
        browser.set_script_timeout(120)
        try:
            collector.post([report(template, name, 60 + index) for index, name in enumerate(names(1000))])
            pages(browser, collector)
            filters(browser, collector)
            compare(browser, collector)
            timeline(browser, collector)
            keyboard(browser, collector)
            dark(browser, collector)
            live(browser, collector, template)
        finally:
            browser.quit()
            collector.kill()
    print("Every page, every filter, a thousand hostile names, the live page across kill -9: as they should be.")


main(*sys.argv[1:])
