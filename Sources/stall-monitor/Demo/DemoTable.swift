#if Command

    /// The demo's result for people.
    struct DemoTable {
        let result: DemoResult

        var text: String {
            let rows = result.stalls.map(cells)
            let widths = Self.titles.indices.map { column in ([Self.titles] + rows).map { $0[column].count }.max() ?? 0 }
            let lines = ([Self.titles] + rows).map { cells in
                zip(cells, widths).map { $0.padding(to: $1) }.joined(separator: "  ")
            }
            return (["", control] + lines + ["", verdict]).joined(separator: "\n")
        }

        private static let titles = ["", "injected", "", "reports", "detected after", "duration", "cause", "culprit as found"]

        private func cells(_ row: DemoResult.Row) -> [String] {
            [
                row.passed ? "ok" : "NOT OK",
                row.stall.rawValue,
                milliseconds(row.injectedNs),
                "\(row.reports)",
                row.detectionNs.map(milliseconds) ?? "never",
                row.durationNs.map(milliseconds) ?? "-",
                row.verdict ?? "-",
                row.culprit ?? "-",
            ]
        }

        private var control: String {
            """
            \(result.control.passed ? "ok" : "NOT OK")  control: \(milliseconds(result.control.durationNs)), \
            \(result.control.requests) requests, \(result.control.reports) reports
            """
        }

        private var verdict: String {
            let failed = result.stalls.count { !$0.passed } + (result.control.passed ? 0 : 1)
            let outcome =
                result.passed
                ? "Each stall gave one report that names the function that stalled; the control time gave none."
                : "\(failed) of \(result.stalls.count + 1) not as expected, \(result.unexpected) reports of nothing injected."
            return "\(outcome)\nReports: \(result.directory)"
        }

        private func milliseconds(_ nanoseconds: Int64) -> String {
            "\((nanoseconds + 500_000) / 1_000_000) ms"
        }
    }

    extension String {
        fileprivate func padding(to width: Int) -> String {
            self + String(repeating: " ", count: max(0, width - count))
        }
    }

#endif
