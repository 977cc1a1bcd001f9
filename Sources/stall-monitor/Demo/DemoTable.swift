#if Command

    /// The demo's result for people.
    struct DemoTable {
        let result: DemoResult

        var lines: [StyledText] {
            var table = TextTable([
                .init(title: ""), .init(title: "injected"), .init(title: "for"), .init(title: "reports"),
                .init(title: "detected after"), .init(title: "duration"), .init(title: "cause"),
                .init(title: "culprit as found"),
            ])
            for row in result.stalls { table.append(cells(row)) }
            return [StyledText("")] + table.lines(width: nil) + [StyledText(""), control] + verdict
        }

        private func cells(_ row: DemoResult.Row) -> [StyledText] {
            [
                mark(row.passed),
                StyledText(row.stall.rawValue),
                milliseconds(row.injectedNs),
                StyledText("\(row.reports)"),
                row.detectionNs.map(milliseconds) ?? StyledText("never"),
                row.durationNs.map(milliseconds) ?? StyledText("-"),
                StyledText(row.verdict ?? "-"),
                StyledText(row.culprit ?? "-"),
            ]
        }

        private var control: StyledText {
            let control = result.control
            return mark(control.passed)
                + StyledText("  control: \(control.reports) reports in \(control.durationNs / 1_000_000_000) s")
                + StyledText(" of \(control.requests) requests without a stall")
        }

        private var verdict: [StyledText] {
            let failed = result.stalls.count { !$0.passed } + (result.control.passed ? 0 : 1)
            let outcome =
                result.passed
                ? "Each stall gave one report, which names the function that stalled; the control time gave none."
                : "\(failed) of \(result.stalls.count + 1) not as expected, \(result.unexpected) reports of nothing injected."
            return [
                StyledText(outcome, .bold),
                StyledText("See one with: stall-monitor show latest \(result.directory)"),
            ]
        }

        private func mark(_ passed: Bool) -> StyledText {
            passed ? StyledText("ok", .green) : StyledText("NOT OK", .red)
        }

        private func milliseconds(_ nanoseconds: Int64) -> StyledText {
            StyledText("\((nanoseconds + 500_000) / 1_000_000) ms")
        }
    }

#endif
