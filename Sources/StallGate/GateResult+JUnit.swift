import StallReports

extension GateResult {
    /// JUnit XML as read by CI servers. Always the same test cases, so that their history can be followed.
    public func junit() -> String {
        let cases = [
            TestCase(name: "a monitor watched, and its reports are complete", errors: doubts.map(\.description)),
            TestCase(name: "number of stalls", failures: failure(.stallCount).map { [$0] + countedLines } ?? []),
            TestCase(name: "length of stalls", failures: failure(.stallLength).map { [$0] + tooLongLines } ?? []),
            TestCase(name: "budgets and baseline", failures: failingFindings.map(\.text)),
            // An error, because servers show its text, but hardly that of a skipped case; and the gate stays closed.
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

    private var countedLines: [String] { counted.map(Self.line) + countedOnly.map(Self.line) }

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
