import StallReports

extension GateResult {
    /// A job summary in Markdown, as shown by GitHub's and GitLab's pages.
    public func markdown(sourceRoot: String) -> String {
        var lines = ["### \(Self.sign(verdict)) \(Markup.markdown(headline))", ""]
        let all = remarks
        let shown = Self.rows(all, sourceRoot)
        if !shown.isEmpty { lines += ["| | what | where |", "|---|---|---|"] + shown + [""] }
        if all.count > shown.count { lines += ["\(all.count - shown.count) more are left out.", ""] }
        let notes = stallLines(atMost: Self.mostNotes) + besides(atMost: Self.mostNotes)
        lines += notes.map { "- \(Markup.markdown($0))" }
        return lines.joined(separator: "\n") + "\n"
    }

    /// The table's rows, as many as there is room for.
    private static func rows(_ remarks: [GateRemark], _ root: String) -> [String] {
        var (rows, room) = ([String](), mostBytes)
        for remark in remarks.prefix(mostRows) {
            let place = remark.placeText(in: root)
            let row = "| \(word(remark)) | \(Markup.markdown(remark.text)) | \(Markup.markdown(place)) |"
            room -= row.utf8.count + 1
            if room < 0 { break }
            rows.append(row)
        }
        return rows
    }

    /// The same as one self-contained HTML file.
    public func html(sourceRoot: String) -> String {
        """
        <!DOCTYPE html>
        <html lang="en">
        <head>
        <meta charset="utf-8"/>
        <title>\(Markup.xml(headline))</title>
        <style>
        \(Self.style)
        </style>
        </head>
        <body>
        <h1>\(Markup.xml(headline))</h1>
        \((htmlTable(sourceRoot) + htmlList).joined(separator: "\n"))
        </body>
        </html>

        """
    }

    private func htmlTable(_ root: String) -> [String] {
        let rows = remarks.map { remark in
            let place = remark.placeText(in: root)
            return
                "<tr class=\"\(remark.level.rawValue)\"><td>\(Self.word(remark))</td><td>\(Markup.xml(remark.text))</td><td><code>\(Markup.xml(place))</code></td></tr>"
        }
        if rows.isEmpty { return [] }
        return ["<table>", "<tr><th></th><th>what</th><th>where</th></tr>"] + rows + ["</table>"]
    }

    private var htmlList: [String] {
        let notes = stallLines() + besides()
        return notes.isEmpty ? [] : ["<ul>"] + notes.map { "<li>\(Markup.xml($0))</li>" } + ["</ul>"]
    }

    private static let style = """
        body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; }
        table { border-collapse: collapse; width: 100%; }
        td, th { border-bottom: 1px solid #8884; padding: 0.4em; text-align: left; vertical-align: top; }
        tr.error td:first-child { color: #b00; font-weight: bold; }
        tr.warning td:first-child { color: #a60; }
        @media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } }
        """

    /// The stalls that are over a limit for all stalls together, as the text has them: the table's findings have only their sum.
    ///
    /// - Parameter most: Of each kind.
    private func stallLines(atMost most: Int = mostLines) -> [String] {
        let tooLong = repeats == 1 ? tooLongLines(most: most) : []
        return tooLong.map { "over budget: \($0)" } + tooManyLines(most: most)
    }

    /// What is said besides the verdict and its reasons.
    ///
    /// - Parameter most: Of each kind.
    private func besides(atMost most: Int = .max) -> [String] {
        let unjudged = unlimited.map { ["not judged: \($0.message)"] } ?? []
        return notes.prefix(most).map { "baseline: \($0)" } + unjudged
            + cutShort.prefix(most).map { "cut short: \(Self.cutShortLine($0))" }
            + unusedAllowances.prefix(most).map { "unused: the allowance of \($0)" }
    }

    private static let mostRows = 500
    private static let mostNotes = 20
    /// GitHub rejects a step's summary of more than a mebibyte. Half of it is left for the other lines, and for other commands of the step.
    private static let mostBytes = 512 << 10

    private static func sign(_ verdict: Verdict) -> String {
        switch verdict {
        case .within: "✅"
        case .over: "❌"
        case .cannotJudge, .inconclusive: "⚠️"
        }
    }

    private static func word(_ remark: GateRemark) -> String {
        remark.excuse == nil ? remark.rule.replacing("_", with: " ") : "allowed"
    }

    /// Workflow commands that GitHub shows at the lines of a pull request: ten errors and ten warnings, GitHub's limit per
    /// step.
    public func gitHubAnnotations(sourceRoot: String) -> String {
        let shown = remarks.filter { $0.excuse == nil }
        return [GateRemark.Level.error, .warning].map { level in
            let all = shown.filter { $0.level == level }
            // The last one says how many were left out.
            let shown = all.count > 10 ? all.prefix(9) : all.prefix(10)
            let lines = shown.map { Self.annotation($0, sourceRoot) }
            let rest = all.count - shown.count
            return lines.joined()
                + (rest == 0 ? "" : "::\(level.rawValue) title=stall-monitor::\(rest) more: see the job's summary\n")
        }.joined()
    }

    private static func annotation(_ remark: GateRemark, _ root: String) -> String {
        let place = remark.place.map { "file=\(Markup.property($0.file(in: root))),line=\($0.line)," } ?? ""
        let title = "stall-monitor: " + remark.rule.replacing("_", with: " ")
        return "::\(remark.level.rawValue) \(place)title=\(Markup.property(title))::\(Markup.data(remark.message))\n"
    }
}

extension GateRemark {
    /// The file and the line. Empty if they are not known.
    fileprivate func placeText(in root: String) -> String {
        place.map { "\($0.file(in: root)):\($0.line)" } ?? ""
    }
}

extension GateResult {
    /// JUnit XML as read by CI servers. Always the same test cases, so that their history can be followed.
    public func junit() -> String {
        let cases = [
            TestCase(name: "a monitor watched, and its reports are complete", errors: doubts.map(\.description)),
            TestCase(name: "number of stalls", failures: failure(.stallCount).map { [$0] + countedLines } ?? []),
            TestCase(name: "length of stalls", failures: failure(.stallLength).map { [$0] + tooLongLines() } ?? []),
            TestCase(name: "budgets and baseline", failures: failingFindings.map(\.text)),
            // An error, because servers show its text, but hardly that of a skipped case; and the run has not passed.
            TestCase(name: "what was seen is enough to tell", errors: doubtfulTexts),
        ]
        let counts = """
            tests="\(cases.count)" failures="\(cases.count { !$0.failures.isEmpty })" \
            errors="\(cases.count { !$0.errors.isEmpty })"
            """
        return """
            <?xml version="1.0" encoding="UTF-8"?>
            <testsuites \(counts)>
              <testsuite name="stall-monitor gate" \(counts) skipped="0" time="0">
            \(cases.map(\.xml).joined(separator: "\n"))
              </testsuite>
            </testsuites>

            """
    }

    /// The message about an exceeded limit for all stalls together, if it is an error.
    private func failure(_ rule: Finding.Rule) -> String? {
        findings.first { $0.budget == nil && $0.rule == rule && $0.severity == .error }?.message
    }

    private var failingFindings: [Finding] {
        findings.filter {
            $0.severity == .error && ($0.budget != nil || ![.stallCount, .stallLength].contains($0.rule))
        }
    }

    private var doubtfulTexts: [String] { findings.filter { $0.severity == .doubtful }.map(\.text) + inconclusive }

    private var countedLines: [String] { lines(counted) + countedOnly.map { line($0) } }

    private struct TestCase {
        let name: String
        var failures: [String] = []
        var errors: [String] = []

        var xml: String {
            let parts = [("failure", failures), ("error", errors)].filter { !$0.1.isEmpty }.map(Self.element)
            let open = #"    <testcase classname="stall-monitor.gate" name="\#(Markup.xml(name))" time="0""#
            return parts.isEmpty ? open + "/>" : "\(open)>\n\(parts.joined(separator: "\n"))\n    </testcase>"
        }

        /// The first line as the message, all of them as the text.
        private static func element(_ name: String, _ lines: [String]) -> String {
            let text = lines.map(Markup.xml).joined(separator: "\n")
            return #"      <\#(name) message="\#(Markup.xml(lines[0]))">\#(text)</\#(name)>"#
        }
    }
}

/// Escapes text for other formats. Characters that a terminal interprets or hides are made visible in each.
enum Markup {
    /// Text for XML, in an element or an attribute. Characters that XML 1.0 does not allow (section 2.2) are made visible.
    static func xml(_ text: String) -> String {
        scalars(text) { ["&": "&amp;", "<": "&lt;", ">": "&gt;", "\"": "&quot;", "'": "&apos;"][$0] }
    }

    /// For a line or a table cell. Uses character references: GitHub's tables treat an escaped bar in code as the end of a
    /// cell.
    static func markdown(_ text: String) -> String {
        scalars(text) { scalar in
            "\\`*_{}[]<>!|&~@".unicodeScalars.contains(scalar) ? "&#\(scalar.value);" : nil
        }
    }

    /// The data of a workflow command.
    static func data(_ text: String) -> String { scalars(text) { ["%": "%25", "\r": "%0D", "\n": "%0A"][$0] } }

    /// A workflow command's property.
    static func property(_ text: String) -> String {
        scalars(text) { ["%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"][$0] }
    }

    /// Works by scalar: a "<" with an accent is one character, but still opens a tag.
    private static func scalars(_ text: String, _ replace: (Unicode.Scalar) -> String?) -> String {
        var result = ""
        for scalar in VisibleText.of(text, limit: 4000).unicodeScalars {
            if let text = replace(scalar) { result += text } else { result.unicodeScalars.append(scalar) }
        }
        return result
    }
}
