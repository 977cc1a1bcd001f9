"""check_spans.py COLLECTOR SERVER: checks that each stall's span is in the trace of its request. COLLECTOR: the output of rotel; SERVER: the output of peer-host."""
import re
import sys

text = open(sys.argv[1]).read()
requests = re.findall(r"^request ([0-9a-f]{32})$", open(sys.argv[2]).read(), re.MULTILINE)
spans = []
for part in re.split(r"^Span #\d+$", text, flags=re.MULTILINE)[1:]:
    field = lambda name: (re.search(rf"^ *{name} *: *(.*)$", part, re.MULTILINE) or [None, ""])[1]
    spans.append({
        "trace": field("Trace ID"), "id": field("ID"), "parent": field("Parent ID"), "name": field("Name"),
        "from": int(field("Start time")), "to": int(field("End time")), "status": field("Status code"), "text": part,
    })
servers = {span["trace"]: span for span in spans if span["name"] == "GET /receipts"}
stalls = [span for span in spans if span["name"] == "loop.blocked"]
assert sorted(servers) == sorted(requests) and len(requests) == 3, "the requests' spans"
assert sorted(span["trace"] for span in stalls) == sorted(requests), "one stall in each trace"
for stall in stalls:
    request = servers[stall["trace"]]
    assert stall["parent"] == request["id"], "the stall is below its request"
    # The clocks are read at different moments.
    assert request["from"] - 5e7 <= stall["from"] <= stall["to"] <= request["to"] + 5e7, "the stall lies in its request"
    assert stall["to"] - stall["from"] >= 5e8, "the stall has its length"
    assert stall["status"] == "STATUS_CODE_ERROR", "it is an error"
    for wanted in [r"code\.function\.name: Str\(.*makeReceipts\(\)", r"code\.file\.path: Str\(.*PeerHost\.swift\)",
                   r"code\.line\.number: Int\(", r"thread\.id: Int\(", r"Name: exception"]:
        assert re.search(wanted, stall["text"]), f"{wanted} in\n{stall['text']}"
print("Each stall's span is in the trace of its request, with function, file, line, thread and stack.")
