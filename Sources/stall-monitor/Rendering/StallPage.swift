#if Command
    import StallReports

    /// One stall on a page of its own, as `show` prints it.
    struct StallPage {
        let report: StallReport
        /// Stalls like it that came after it and were only counted.
        var repeats: StallReport.Repeats?
        /// Show every frame, also the libraries'.
        var showsAllFrames = false

        var lines: [StyledText] {
            title + [""] + facts + [""] + stacks + modules + cost
        }

        private var title: [StyledText] {
            let severity: StyledText.Style = report.severity == .warning ? .yellow : .red
            let head: StyledText =
                "\("Stall", .bold) \(report.id, .bold)  \(report.severity, severity)  \(report.styledState)  \(report.kind)"
            let summary = report.cause.summary
            return summary.isEmpty ? [head] : [head, "\(summary, .bold)"]
        }

        private var facts: [StyledText] {
            StallFacts(report: report, repeats: repeats).rows.map { name, value in
                "  \(StyledText(name, .dim).padded(to: 12))\(value)"
            }
        }

        private var stacks: [StyledText] {
            report.stacks.flatMap { stack in
                StackListing(stack: stack, modules: report.modules, showsAllFrames: showsAllFrames).lines + [""]
            }
        }

        private var modules: [StyledText] {
            guard !report.modules.isEmpty else { return [] }
            let rows = report.modules.map { module -> StyledText in
                "  \(module.path)  \("build id \(module.buildID ?? "unknown")", .dim)"
            }
            return ["\("Modules", .bold)"] + rows + [""]
        }

        private var cost: [StyledText] {
            let cost = report.monitor
            let times = [("held", cost.heldNs), ("unwinding", cost.unwindNs), ("naming", cost.symbolicationNs)]
                .map { "\($0.0) \(DurationText(nanoseconds: $0.1).short)" }
            return [
                "\("Cost: thread \(times.joined(separator: ", ")), \(cost.copiedBytes) bytes of stack copied", .dim)"
            ]
        }
    }
#endif
