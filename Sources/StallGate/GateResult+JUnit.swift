import StallReports

extension GateResult {
    /// JUnit XML as CI servers read it. Always the same three test cases, so that their history can be followed.
    public func junit() -> String {
        let cases = [
            TestCase(name: "a monitor watched, and its reports are complete", errors: doubts.map(\.description)),
            TestCase(name: "number of stalls", failures: tooManyText.map { [$0] + countedLines } ?? []),
            TestCase(name: "length of stalls", failures: tooLongLines),
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

    private var countedLines: [String] { counted.map(Self.line) + countedOnly.map(Self.line) }

    private struct TestCase {
        let name: String
        var failures: [String] = []
        var errors: [String] = []

        var xml: String {
            let parts = [("failure", failures), ("error", errors)].filter { !$0.1.isEmpty }.map(Self.element)
            let open = #"    <testcase classname="stall-monitor.gate" name="\#(escaped(name))" time="0""#
            return parts.isEmpty ? open + "/>" : "\(open)>\n\(parts.joined(separator: "\n"))\n    </testcase>"
        }

        /// The first line as the message, all of them as the text.
        private static func element(_ name: String, _ lines: [String]) -> String {
            let text = lines.map(escaped).joined(separator: "\n")
            return #"      <\#(name) message="\#(escaped(lines[0]))">\#(text)</\#(name)>"#
        }
    }
}

/// Text for XML, in an element or an attribute. What XML 1.0 cannot hold at all (section 2.2) is made visible.
private func escaped(_ text: String) -> String {
    var result = ""
    // By scalar: a "<" with an accent is one character, and still opens a tag.
    for scalar in VisibleText.of(text, limit: 2000).unicodeScalars {
        switch scalar {
        case "&": result += "&amp;"
        case "<": result += "&lt;"
        case ">": result += "&gt;"
        case "\"": result += "&quot;"
        case "'": result += "&apos;"
        default: result.unicodeScalars.append(scalar)
        }
    }
    return result
}
