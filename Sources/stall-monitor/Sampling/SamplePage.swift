import StallReports

/// A sample as text.
struct SamplePage {
    let document: SampleDocument
    /// Whether the last lines say what the sample cost.
    var showsCost = true
    /// The terminal's width. Nil: unlimited.
    var width: Int?

    /// The largest number of stacks printed.
    private static let limit = 200
    /// The largest number of threads named for one stack.
    private static let threadLimit = 8

    var lines: [StyledText] {
        var lines = title + [""] + document.stacks.prefix(Self.limit).flatMap(lines(of:))
        lines += rest + failures
        if showsCost { lines += cost }
        return lines.wrapped(to: width, hanging: 8)
    }

    private var isCounted: Bool { document.intervalNs != nil }

    private var title: [StyledText] {
        let process = document.process
        let name = [process.name, process.executable].compactMap { $0 }.joined(separator: "  ")
        let head: StyledText = "\("Process", .bold) \(process.id, .bold)  \(name)"
        return [head] + firstThread + counts
    }

    private var firstThread: [StyledText] {
        guard document.process.firstThreadEnded == true else { return [] }
        return ["Its first thread has ended; the others live on, and these are shown."]
    }

    private var counts: [StyledText] { isCounted ? ["\(document.summary)"] : [] }

    private func lines(of stack: SampleDocument.Stack) -> [StyledText] {
        let shown = document.reported(stack)
        return [heading(of: stack)]
            + StackListing(stack: shown, modules: document.modules, showsAllFrames: true).frameLines + [""]
    }

    private func heading(of stack: SampleDocument.Stack) -> StyledText {
        let all = stack.threads.map(\.thread)
        let names = all.prefix(Self.threadLimit).map(\.numberAndName).joined(separator: ", ")
        let more = all.count > Self.threadLimit ? ", …" : ""
        let who: StyledText = all.count == 1 ? "\("Thread", .bold)" : "\("\(all.count) threads:", .bold)"
        let seen: StyledText = isCounted ? "\("\(stack.count)×", .bold)  " : ""
        return "\(seen)\(who) \(names)\(more), \(Self.doing(stack)), \(Self.method(stack))"
    }

    private static func doing(_ stack: SampleDocument.Stack) -> String {
        if stack.method != "quiet" { return "running" }
        let isStopped = ["T", "t"].contains(stack.threads[0].thread.state)
        if let call = stack.systemCall {
            return "\(isStopped ? "stopped" : "asleep") in \(call.name ?? "system call \(call.number)")"
        }
        return isStopped ? "stopped" : "asleep outside a system call"
    }

    private static func method(_ stack: SampleDocument.Stack) -> String {
        guard stack.method == "stopped" else { return "\(stack.method) capture" }
        let pause = DurationText(nanoseconds: stack.heldNs / Int64(max(1, stack.count))).short
        return stack.count == 1 ? "paused for \(pause)" : "paused for \(pause) on average"
    }

    private var rest: [StyledText] {
        let count = document.stacks.count - Self.limit
        return count > 0 ? ["… \(quantity(count, "more stack")) (--format json has all)", ""] : []
    }

    private var failures: [StyledText] {
        guard !document.failures.isEmpty else { return [] }
        return document.failures.map { failure -> StyledText in
            let count = failure.count > 1 ? " (\(failure.count) times)" : ""
            return "\("No stack", .yellow) of thread \(failure.thread.numberAndName)\(count): \(failure.message)"
        } + [""]
    }

    private var cost: [StyledText] {
        let own = DurationText(nanoseconds: document.cost.samplerCPUNs).short
        return [
            "\("Cost to the process: \(costToProcess)", .dim)",
            "\("Cost of stall-monitor itself: \(own) of CPU time.", .dim)",
        ]
    }

    private var costToProcess: String {
        let cost = document.cost
        guard cost.stops + cost.stopsGivenUp > 0 else { return "none. No thread was stopped." }
        let times = [cost.heldNs, cost.longestHeldNs, cost.waitedNs].map { DurationText(nanoseconds: $0).short }
        let stops =
            switch cost.stops {
            case 0: "no stop"
            case 1: "1 stop of \(times[0])"
            default: "\(cost.stops) stops, \(times[0]) together, the longest \(times[1])"
            }
        let restarted =
            cost.callsRestarted > 0 ? ", \(quantity(cost.callsRestarted, "system call")) started again" : ""
        let givenUp = cost.stopsGivenUp > 0 ? ", \(quantity(cost.stopsGivenUp, "stop")) given up" : ""
        let waited = cost.waitedNs > 0 ? "; besides, \(times[2]) waiting for a CPU" : ""
        return stops + restarted + givenUp + waited
    }
}

extension SampleDocument {
    /// The stack as in a stall report.
    func reported(_ stack: Stack) -> StallReport.Stack {
        StallReport.Stack(
            thread: stack.threads[0].thread,
            capturedAt: startedAt,
            complete: stack.complete,
            frames: stack.frames,
            leftOut: stack.leftOut,
            error: stack.error,
            async: stack.async
        )
    }

    /// `500 samples, one every 10ms, in 5s`.
    var summary: String {
        let due = samples + missed
        let count = "\(samples) sample\(due == 1 ? "" : "s")\(missed > 0 ? " of \(due) that were due" : "")"
        guard let intervalNs else { return count }
        let times = [intervalNs, durationNs].map { DurationText(nanoseconds: $0).short }
        let ending: String =
            switch ended {
            case .complete: ""
            case .interrupted: "; interrupted"
            case .processEnded: "; then the process ended"
            }
        return "\(count), one every \(times[0]), in \(times[1])\(ending)"
    }
}
