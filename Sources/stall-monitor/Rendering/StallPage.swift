import StallReports

/// All details of a stall, as `show --full` prints them.
struct StallPage {
    let report: StallReport
    /// Later stalls of the same fault that were only counted.
    var repeats: StallReport.Repeats?
    /// Show every frame, including those of libraries.
    var showsAllFrames = false
    /// The terminal's width, for tables. Nil: unlimited.
    var width: Int?

    var lines: [StyledText] {
        var lines = title + [""] + facts + [""]
        lines += workers + stacks
        return lines + modules + cost
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

    /// A lock's owner follows the thread that waits for it.
    private var stacksInOrder: [StallReport.Stack] {
        let owners = report.stacks.filter { $0.role == .lockOwner }
        let others = report.stacks.filter { $0.role != .lockOwner }
        return Array(others.prefix(1)) + owners + Array(others.dropFirst())
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
        let stopped = cost.heldNs == 0 ? "not stopped" : "stopped for \(DurationText(nanoseconds: cost.heldNs).short)"
        let times =
            [stopped]
            + [("unwinding", cost.unwindNs), ("naming", cost.symbolicationNs)]
            .map { "\($0.0) \(DurationText(nanoseconds: $0.1).short)" }
        let threads = [("watchdog", cost.watchdogCPUNs), ("reporter", cost.reporterCPUNs)]
            .compactMap { name, time in
                time.map { ", \(name) \(DurationText(nanoseconds: $0).short) of CPU time" }
            }
        let copied = "\(cost.copiedBytes) bytes of stack copied"
        let note = cost.budget.map { ". The monitor's budget for its own cost was spent: captures \($0)" } ?? ""
        return [
            "\("Cost: thread \(times.joined(separator: ", ")), \(copied)\(threads.joined())\(note)", .dim)"
        ]
    }
}
