import StallReports

/// One stall on a page of its own, as `show` prints it.
struct StallPage {
    let report: StallReport
    /// Stalls like it that came after it and were only counted.
    var repeats: StallReport.Repeats?
    /// Show every frame, also the libraries'.
    var showsAllFrames = false
    /// Of the terminal, for tables. Nil: as wide as they are.
    var width: Int?

    var lines: [StyledText] {
        title + [""] + facts + [""] + workers + stacks + modules + cost
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

    private var workers: [StyledText] {
        report.pool.map { PoolTable(report: report, pool: $0, width: width).lines } ?? []
    }

    private var stacks: [StyledText] {
        stacksInOrder.flatMap { stack in
            StackListing(
                stack: stack,
                modules: report.modules,
                isOfPool: report.pool != nil,
                showsAllFrames: showsAllFrames
            ).lines + [""]
        }
    }

    /// Who holds the lock comes right below who waits for it.
    private var stacksInOrder: [StallReport.Stack] {
        let owners = report.stacks.filter { $0.role == .lockOwner }
        let others = report.stacks.filter { $0.role != .lockOwner }
        return others.prefix(1) + owners + others.dropFirst()
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
        let threads = [("watchdog", cost.watchdogCPUNs), ("reporter", cost.reporterCPUNs)]
            .compactMap { name, time in
                time.map { ", \(name) \(DurationText(nanoseconds: $0).short) of a processor" }
            }
        let copied = "\(cost.copiedBytes) bytes of stack copied"
        let note = cost.budget.map { ". The monitor's budget for its own cost was spent: captures \($0)" } ?? ""
        return [
            "\("Cost: thread \(times.joined(separator: ", ")), \(copied)\(threads.joined())\(note)", .dim)"
        ]
    }
}
