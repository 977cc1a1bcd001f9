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
        /// The number of the function: all its boxes have the same one. Nil for the box of everything.
        var f: Int?
        var o: Int?
        var t: Int64
        /// In the earlier one of two compared sets.
        var b: Int64?
        var c: [Box]?

        init(_ node: FlameGraph.Node, isCompared: Bool = false) {
            (n, p, f, o, t) = (node.name, node.place, node.function, node.isOwn ? 1 : nil, node.amount)
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
        :root { color-scheme: light dark; --back: #fff; --text: #222; --soft: #666; --line: #ddd; --box: #e5d9c3; --own-box: #e8833a; --hit: #b030c0; }
        @media (prefers-color-scheme: dark) {
          :root { --back: #16181c; --text: #e6e6e6; --soft: #9aa0a6; --line: #333; --box: #5b5346; --own-box: #8f4a14; --hit: #a02fb0; }
        }
        body { margin: 1.5rem; background: var(--back); color: var(--text); font: 14px/1.45 system-ui, sans-serif; }
        h1 { font-size: 1.3rem; margin: 0 0 .3rem; }
        p { margin: .2rem 0 1rem; color: var(--soft); }
        #bar { display: flex; gap: .7rem; align-items: center; margin-bottom: .7rem; flex-wrap: wrap; }
        input, button { font: inherit; padding: .3rem .6rem; border: 1px solid var(--line); border-radius: 5px; background: var(--back); color: inherit; }
        #search { width: 22rem; max-width: 100%; box-sizing: border-box; }
        #graph { position: relative; font: 11px ui-monospace, monospace; }
        .box { position: absolute; height: 18px; line-height: 18px; overflow: hidden; white-space: nowrap; text-overflow: clip; padding: 0 3px;
          box-sizing: border-box; border: 0; border-right: 1px solid var(--back); border-bottom: 1px solid var(--back); background: var(--box);
          color: var(--text); border-radius: 2px; cursor: pointer; text-align: left; font: inherit; min-width: 0; max-width: none; }
        .own { background: var(--own-box); }
        .hit { background: var(--hit); color: #fff; }
        .above { background: var(--line); }
        .centre { font-weight: 700; outline: 1px solid var(--text); outline-offset: -1px; }
        .box:focus-visible { outline: 2px solid var(--text); outline-offset: -2px; }
        button[aria-pressed=true] { background: var(--text); color: var(--back); }
        button:disabled { color: var(--soft); }
        summary { cursor: pointer; font-weight: 600; margin: .6rem 0; }
        #told { min-height: 3em; margin: .6rem 0 1.2rem; color: var(--soft); overflow-wrap: anywhere; white-space: pre-line; }
        .scroll { overflow-x: auto; }
        table { border-collapse: collapse; width: 100%; }
        th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
        th button { border: 0; padding: 0; background: none; font-weight: 600; cursor: pointer; white-space: nowrap; }
        .function { border: 0; padding: 0; background: none; cursor: pointer; text-align: left; text-decoration: underline; overflow-wrap: anywhere; }
        td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }

        """

    /// The elements that the script fills.
    public static let markup = """
        <h1>Stalls</h1>
        <p id="summary"></p>
        <div id="bar">
        <input id="search" type="search" placeholder="Search functions, files, causes" aria-label="Search">
        <button id="reset" type="button">Whole graph</button>
        <button id="sandwich" type="button" aria-pressed="false" title="Callers and callees of the chosen function, merged from all its places">Sandwich</button>
        <span id="found" role="status"></span>
        </div>
        <p id="help">Choose a call to enlarge it; the arrow keys move from call to call. Sandwich shows the chosen function between all its callers and callees.</p>
        <div id="graph" role="group" aria-label="Flame graph" aria-describedby="help"></div>
        <div id="told"></div>
        <details id="functions"><summary>Functions</summary>
        <div class="scroll"><table><thead></thead><tbody></tbody></table></div>
        <p role="status"></p></details>
        <section id="rows"><div class="scroll"><table><thead></thead><tbody></tbody></table></div>
        <p role="status"></p></section>

        """
}
