"""Asks a server of ClickHouse every question of the Grafana dashboard, as Grafana would, and compares the totals with the collector's.

  grafana.py DASHBOARD PORT DATABASE COLLECTOR     COLLECTOR is its address: http://127.0.0.1:4319
"""
import json
import re
import sys
import time
import urllib.request


def main(path, port, database, collector):
    dashboard = json.load(open(path))
    now = int(time.time() * 1000)
    values = {"database": database, "team:sqlstring": "'default'", "__from": str(now - 86_400_000), "__to": str(now), "__interval_ms": "60000"}

    def ask(sql):
        for name, value in values.items():
            sql = sql.replace("${%s}" % name, value).replace("$" + name, value)
        left = re.search(r"\$\w+|\$\{[^}]*\}", sql)
        assert not left, f"nobody gives it {left[0]}: {sql}"
        request = urllib.request.Request(f"http://127.0.0.1:{port}/", (sql + " FORMAT JSON").encode())
        try:
            return json.load(urllib.request.urlopen(request, timeout=60))["data"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{sql}\n{error.read().decode()[:500]}")

    variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
    teams = [row["team"] for row in ask(variables["team"]["query"])]
    assert "default" in teams, teams
    services = [row["service"] for row in ask(variables["service"]["query"])]
    values["service:sqlstring"] = ",".join("'" + service.replace("'", "''") + "'" for service in services)
    found = {panel["title"]: ask(panel["targets"][0]["rawSql"]) for panel in dashboard["panels"]}
    empty = [title for title, rows in found.items() if not rows and not title.startswith("Monitors")]
    assert not empty, f"nothing is found for {empty}"
    faults = json.load(urllib.request.urlopen(collector + "/api/v1/faults?since=1d&limit=1000"))["faults"]
    reports = sum(int(row["stalls"]) for row in found["Faults"])
    # Stalls that are in no report are known to the collector only, from run records.
    assert 0 < reports <= sum(fault["count"] for fault in faults), (reports, faults)
    assert {row["fault"] for row in found["Faults"]} <= {name for fault in faults for name in [fault["fingerprint"], *fault.get("aliases", [])]}
    print(f"{len(found)} panels of the dashboard, and each finds something.")


main(*sys.argv[1:])
