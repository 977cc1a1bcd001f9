public import StallReports

/// The parts of a page with a flame graph, for a server with its own pages: ``style``, ``markup``, ``script``, and, as an
/// exporter, the data, which belongs into `<script type="application/json" id="data">` before the script. The script inserts data
/// from reports only as text, never as markup.
public struct FlameGraphView: ReportExporter {
    private var stacks = WeightedStacks()
    private var rows: [Row] = []

    /// Creates one without reports.
    public init() {}

    /// Keeps the report for ``end()``. Returns nothing: the data is written at the end.
    public mutating func add(_ report: StallReport) throws(ReportError) -> [UInt8] {
        stacks.add(report)
        rows.append(Row(report))
        return []
    }

    /// Returns the data: JSON without `<`, so that it cannot end the script element that it is placed in.
    public func end() throws(ReportError) -> [UInt8] {
        Self.embedded(try ReportJSON.encode(Content(graph: Box(FlameGraph(stacks).root), stalls: rows)))
    }

    /// JSON that can be placed into a script element: only this character could end the element.
    static func embedded(_ json: [UInt8]) -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(json.count)
        for byte in json {
            if byte == UInt8(ascii: "<") { bytes += "\\u003c".utf8 } else { bytes.append(byte) }
        }
        return bytes
    }

    /// The data of samples: the page shows the graph without a table.
    static func data(of stacks: WeightedStacks, _ subject: String, _ summary: String) throws(ReportError) -> [UInt8] {
        let words = Words(title: plain(subject), summary: plain(summary))
        return embedded(try ReportJSON.encode(Content(graph: Box(FlameGraph(stacks).root), stalls: [], samples: words)))
    }

    private struct Content: Encodable {
        var graph: Box
        var stalls: [Row]
        var samples: Words?
    }

    private struct Words: Encodable {
        var title: String
        var summary: String
    }

    /// With short keys, because a large graph has many.
    struct Box: Encodable {
        var n: String
        var p: String?
        var o: Int?
        var t: Int64
        /// In the earlier one of two compared sets.
        var b: Int64?
        var c: [Box]?

        init(_ node: FlameGraph.Node, isCompared: Bool = false) {
            (n, p, o, t) = (node.name, node.place, node.isOwn ? 1 : nil, node.amount)
            b = isCompared ? node.before : nil
            c = node.children.isEmpty ? nil : node.children.map { Box($0, isCompared: isCompared) }
        }
    }

    private struct Row: Encodable {
        var id: String
        var started: String
        var ns: Int64
        var state: String
        var kind: String
        var verdict: String
        var service: String
        var label: String
        var culprit: String
        var cause: String
        var fingerprint: String

        init(_ report: StallReport) {
            (id, started, ns) = (report.id.description, report.startedAt.description, report.durationNs)
            (state, kind) = (plain(report.state.rawValue), plain(report.kind.rawValue))
            verdict = plain(report.cause.verdict.canonical.rawValue)
            (service, label) = (plain(report.service?.name ?? ""), plain(report.watched.label))
            (culprit, cause) = (plain(report.culpritName ?? ""), plain(report.cause.summary))
            fingerprint = report.fingerprint.description
        }
    }

    /// The contents of a style sheet.
    public static let style = """
        :root { color-scheme: light dark; --back: #fff; --text: #222; --soft: #666; --line: #ddd; --box: #e5d9c3; --own: #e8833a; --hit: #c13fd1; }
        @media (prefers-color-scheme: dark) {
          :root { --back: #16181c; --text: #e6e6e6; --soft: #9aa0a6; --line: #333; --box: #5b5346; --own: #b8601f; --hit: #a02fb0; }
        }
        body { margin: 1.5rem; background: var(--back); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
        h1 { font-size: 1.3rem; margin: 0 0 .3rem; }
        p { margin: .2rem 0 1rem; color: var(--soft); }
        #bar { display: flex; gap: .7rem; align-items: center; margin-bottom: .7rem; flex-wrap: wrap; }
        input, button { font: inherit; padding: .3rem .6rem; border: 1px solid var(--line); border-radius: 5px; background: var(--back); color: inherit; }
        input { min-width: 20rem; }
        #graph { position: relative; font: 11px ui-monospace, monospace; }
        .box { position: absolute; height: 18px; line-height: 18px; overflow: hidden; white-space: nowrap; text-overflow: clip; padding: 0 3px;
          box-sizing: border-box; border: 0; border-right: 1px solid var(--back); border-bottom: 1px solid var(--back); background: var(--box);
          color: var(--text); border-radius: 2px; cursor: pointer; text-align: left; font: inherit; min-width: 0; }
        .own { background: var(--own); }
        .hit { background: var(--hit); color: #fff; }
        .above { opacity: .55; }
        #told { min-height: 3em; margin: .6rem 0 1.2rem; color: var(--soft); overflow-wrap: anywhere; white-space: pre-line; }
        .scroll { overflow-x: auto; }
        table { border-collapse: collapse; width: 100%; }
        th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
        th button { border: 0; padding: 0; background: none; font-weight: 600; cursor: pointer; }
        td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }

        """

    /// The elements that the script fills.
    public static let markup = """
        <h1>Stalls</h1>
        <p id="summary"></p>
        <div id="bar">
        <input id="search" type="search" placeholder="Search functions, files, causes" aria-label="Search">
        <button id="reset" type="button">Whole graph</button>
        <span id="found" role="status"></span>
        </div>
        <div id="graph"></div>
        <div id="told"></div>
        <div class="scroll"><table><thead id="heads"></thead><tbody id="rows"></tbody></table></div>
        <p id="more" role="status"></p>

        """

    /// A page must place it after the elements and the data.
    public static let script = #"""
        "use strict";
        const data = JSON.parse(document.getElementById("data").textContent);
        const element = id => document.getElementById(id);
        // The limits are those above which a shorter unit would be rounded to 1000.
        const time = ns => ns >= 999.95e6 ? (ns / 1e9).toFixed(2) + " s" : ns >= 999.5e3 ? (ns / 1e6).toFixed(1) + " ms" : (ns / 1e3).toFixed(0) + " µs";
        // Weights are nanoseconds of blocked time, or samples.
        const amount = value => data.samples ? value + (value === 1 ? " sample" : " samples") : time(value);
        const share = (part, whole) => whole > 0 ? (part > 0 && part < whole / 2000 ? "<0.1" : (100 * part / whole).toFixed(1)) + " %" : "–";
        // Boxes of a comparison have the time of the earlier set too. They are as wide as both together, and coloured by the change.
        const sides = data.sides, weight = node => node.t + (node.b || 0);
        let shown = [data.graph], words = "", order = sides ? null : "ns", falling = !sides;

        function matches(text) { return words !== "" && text.toLowerCase().includes(words); }

        function describe(node) {
          const name = node.n + (node.p ? "\n" + node.p : "") + "\n";
          if (!sides) return name + amount(node.t) + ", " + share(node.t, data.graph.t) + " of all";
          return name + time(node.b) + " → " + time(node.t) + (sides.rate ? " per hour watched" : "");
        }

        function tell(node) { element("told").textContent = describe(node); }

        // From blue (gone) over grey (unchanged) to red (new).
        function shade(node) {
          const change = weight(node) > 0 ? (node.t - node.b) / weight(node) : 0;
          return `hsl(${change > 0 ? 8 : 215} ${Math.round(85 * Math.abs(change))}% ${Math.round(78 - 18 * Math.abs(change))}%)`;
        }

        function draw() {
          const graph = element("graph");
          graph.replaceChildren();
          let depth = 0, hits = 0;
          const top = shown[shown.length - 1];
          function box(node, path, left, width, level, isAbove) {
            if (width < 0.0004) return;
            depth = Math.max(depth, level);
            const item = document.createElement("button");
            item.className = "box" + (node.o ? " own" : "") + (isAbove ? " above" : "");
            if (matches(node.n) || (node.p && matches(node.p))) item.classList.add("hit");
            item.style.left = 100 * left + "%";
            item.style.width = 100 * width + "%";
            item.style.top = 18 * level + "px";
            item.textContent = node.n;
            item.title = describe(node);
            if (sides && !item.classList.contains("hit")) { item.style.background = shade(node); item.style.color = "#222"; }
            item.addEventListener("click", () => { shown = path; tell(node); draw(); });
            item.addEventListener("mouseenter", () => tell(node));
            graph.append(item);
            if (isAbove) return;
            let x = left;
            for (const child of node.c || []) {
              const part = weight(node) > 0 ? width * weight(child) / weight(node) : 0;
              box(child, path.concat([child]), x, part, level + 1, false);
              x += part;
            }
          }
          shown.slice(0, -1).forEach((node, level) => box(node, shown.slice(0, level + 1), 0, 1, level, true));
          box(top, shown, 0, 1, shown.length - 1, false);
          graph.style.height = 18 * (depth + 1) + "px";
          const sum = node => matches(node.n) || (node.p && matches(node.p)) ? weight(node) : (node.c || []).reduce((all, child) => all + sum(child), 0);
          element("found").textContent = words === "" ? "" : share(sum(data.graph), weight(data.graph)) + (data.samples ? " of the samples" : " of the time") + " is in matching calls";
        }

        const most = 1000;
        const columns = data.samples ? [] : sides ? sides.columns.map((name, index) => [index, name]) : [["started", "Started"], ["ns", "Length"], ["kind", "Kind"], ["verdict", "Why"], ["service", "Service"], ["label", "Watched"], ["culprit", "Culprit"], ["cause", "Cause"], ["id", "Report"]];

        // A comparison's cells are texts. A column of numbers or lengths is sorted by value, "2 → 6.5" by the later side.
        const units = { ns: 1, "µs": 1e3, ms: 1e6, s: 1e9, m: 6e10, h: 3.6e12, d: 8.64e13 };
        function value(cell) {
          const later = cell.slice(cell.lastIndexOf("→") + 1).trim();
          const parts = [...later.matchAll(/([\d.]+)(ns|µs|ms|s|m|h|d)?/g)];
          if (later === "–") return -1;
          return parts.map(part => part[0]).join("") === later ? parts.reduce((sum, part) => sum + part[1] * (units[part[2]] || 1), 0) : NaN;
        }

        function list() {
          const rows = data.stalls.filter(stall => words === "" || columns.some(([key]) => matches(String(stall[key]))));
          const isNumber = sides && order !== null && rows.every(row => !isNaN(value(row[order])));
          const key = row => isNumber ? value(row[order]) : row[order];
          rows.sort((one, other) => (key(one) < key(other) ? -1 : key(one) > key(other) ? 1 : 0) * (falling ? -1 : 1));
          element("rows").replaceChildren(...rows.slice(0, most).map(stall => {
            const row = document.createElement("tr");
            for (const [key] of columns) {
              const cell = document.createElement("td");
              cell.textContent = key === "ns" ? time(stall.ns) : key === "id" ? stall.id.slice(0, 10)
        : key === "started" ? stall.started.slice(0, 23).replace("T", " ") : stall[key];
              if (key === "ns") cell.className = "number";
              row.append(cell);
            }
            return row;
          }));
          const left = rows.length - most;
          element("more").textContent = left > 0 ? left + " more, which this table does not show: search for them, or sort by another column." : "";
        }

        const head = document.createElement("tr");
        for (const [key, name] of columns) {
          const cell = document.createElement("th"), button = document.createElement("button");
          button.textContent = name;
          button.addEventListener("click", () => { falling = order === key ? !falling : true; order = key; list(); });
          cell.append(button);
          head.append(cell);
        }
        element("heads").append(head);
        if (sides) document.querySelector("h1").textContent = document.title = sides.before + " → " + sides.after;
        if (data.samples) document.querySelector("h1").textContent = document.title = data.samples.title;
        element("summary").textContent = data.samples ? data.samples.summary : sides ? sides.summary : data.stalls.length + (data.stalls.length === 1 ? " stall, " : " stalls, ") + time(data.graph.t) + " together. Orange is the server's own code. Times are UTC.";
        element("search").addEventListener("input", event => { words = event.target.value.trim().toLowerCase(); draw(); list(); });
        element("reset").addEventListener("click", () => { shown = [data.graph]; draw(); });
        draw();
        list();

        """#
}
