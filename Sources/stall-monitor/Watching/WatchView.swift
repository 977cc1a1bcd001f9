import Glibc
import ProcessWatch
import StallMonitor
import StallReports
import Synchronization

/// The output of `watch`. Called on the watcher's and the reporter's threads.
final class WatchView: Sendable {
    private struct State {
        var shown: Set<ULID> = []
        var stalls = 0
        var counted = 0
        var repeats = RepeatLines()
        /// The culprits of the latest reports, for the lines about stalls that are only counted.
        var culprits: [ULID: String] = [:]
        /// Counted by thread: a thread that runs another program with a loop counts once.
        var loops = 0
        var pools = 0
        var processes = 0
        /// The threads with a loop, and the pools, of the processes that have not ended.
        var present: [Int32: (loops: Set<Int32>, pools: Set<String>)] = [:]

        /// Remembers 1000 culprits: `watch` may run for months.
        mutating func learn(_ report: StallReport) {
            culprits[report.id] = report.culpritText
            if culprits.count > 1000, let oldest = culprits.keys.min() { culprits[oldest] = nil }
        }

        mutating func count(_ note: WatchNote) {
            switch note {
            case .watching: processes += 1
            case .foundLoop(let process, let thread, _):
                loops += present[process, default: ([], [])].loops.insert(thread).inserted ? 1 : 0
            case .foundPool(let process, let pool, _):
                pools += present[process, default: ([], [])].pools.insert(pool).inserted ? 1 : 0
            case .ended(let process, _): present[process] = nil
            default: break
            }
        }
    }

    private let format: OutputFormat
    /// Whether standard output belongs to the watched command.
    private let isBesideCommand: Bool
    /// Whether only stalls and problems are shown.
    private let isQuiet: Bool
    private let state = Mutex(State())

    init(_ format: OutputFormat, isBesideCommand: Bool, isQuiet: Bool) {
        (self.format, self.isBesideCommand, self.isQuiet) = (format, isBesideCommand, isQuiet)
    }

    func show(_ event: StallEvent) {
        switch event {
        case .began(let report), .ended(let report): show(report)
        case .grew: break
        case .suppressed(let stall): show(stall)
        case .fault(let error): Output.note(error.message)
        case .mended(let error): Output.note("this is over: \(error.message)")
        }
    }

    /// Shows that a fault goes on, as `tail -f` does: otherwise nothing would be printed while the same stall comes again and again.
    private func show(_ stall: SuppressedStall) {
        // The count is that of all loops that have the fault: none of their names belongs beside it.
        let fault = RunRecord.Repeated(fingerprint: stall.fingerprint, repeats: stall.repeats)
        let line = state.withLock { state in
            state.counted += 1
            return state.repeats.line(fault, of: ULID(rawValue: 0), culprits: state.culprits)
        }
        if format == .text, let line { write(terminal.show(line) + "\n") }
    }

    private func show(_ report: StallReport) {
        let isFirst = state.withLock { state in
            state.learn(report)
            guard state.shown.insert(report.id).inserted else { return false }
            state.stalls += 1
            return true
        }
        if format == .json {
            if let text = try? JSONText.of(report) { write(text + "\n") }
        } else {
            let terminal = terminal
            let lines = StallLine.lines(report, isFirst: isFirst, width: terminal.width)
            write(lines.map { terminal.show($0) + "\n" }.joined())
        }
        // An ended stall is not shown again.
        if report.state != .ongoing { state.withLock { _ = $0.shown.remove(report.id) } }
    }

    private var terminal: Terminal { .current(isBesideCommand ? STDERR_FILENO : STDOUT_FILENO) }

    private func write(_ text: String) {
        if isBesideCommand { Output.error(text) } else { try? Output.write(text) }
    }

    func show(_ note: WatchNote) {
        state.withLock { $0.count(note) }
        if !isQuiet || note.isProblem { Output.note(note.words) }
    }

    /// The last line.
    func close(after nanoseconds: Int64, _ directory: String, lost: Int) {
        let state = state.withLock { $0 }
        let counted = state.counted > 0 ? ", \(state.counted) more of known faults only counted" : ""
        let pools = state.pools == 0 ? "" : " and \(quantity(state.pools, "task pool"))"
        if !isQuiet {
            Output.note(
                "watched \(quantity(state.loops, "loop"))\(pools) of \(quantity(state.processes, "process")) for "
                    + "\(DurationText(nanoseconds: max(0, nanoseconds)).short): \(quantity(state.stalls, "stall"))\(counted)"
                    + "; reports are in \(directory)"
            )
        }
        if lost > 0 {
            Output.note("\(quantity(lost, "report")) could not be written, and \(lost == 1 ? "is" : "are") lost")
        }
    }
}
