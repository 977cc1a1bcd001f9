import Glibc
import ProcessWatch
import StackCapture
import StallMonitor
import StallReports
import Synchronization

/// The output of `watch`. Called on the watcher's and the reporter's threads.
final class WatchView: Sendable {
    private struct State {
        var shown: Set<ULID> = []
        var stalls = 0
        var counted = 0
        /// Counted by thread: a thread that runs another program with a loop counts once.
        var loops = 0
        var pools = 0
        var processes = 0
        /// The threads with a loop, and the pools, of the processes that have not ended.
        var present: [Int32: (loops: Set<Int32>, pools: Set<String>)] = [:]

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
        case .suppressed: state.withLock { $0.counted += 1 }
        case .fault(let error): Output.note(error.message)
        case .mended(let error): Output.note("this is over: \(error.message)")
        }
    }

    private func show(_ report: StallReport) {
        let isFirst = state.withLock { state in
            guard state.shown.insert(report.id).inserted else { return false }
            state.stalls += 1
            return true
        }
        if format == .json {
            if let text = try? JSONText.of(report) { write(text + "\n") }
        } else {
            let terminal = Terminal.current(isBesideCommand ? STDERR_FILENO : STDOUT_FILENO)
            let lines = StallLine.lines(report, isFirst: isFirst, width: terminal.width)
            write(lines.map { terminal.show($0) + "\n" }.joined())
        }
        // An ended stall is not shown again.
        if report.state != .ongoing { state.withLock { _ = $0.shown.remove(report.id) } }
    }

    private func write(_ text: String) {
        if isBesideCommand { Output.error(text) } else { try? Output.write(text) }
    }

    func show(_ note: WatchNote) {
        state.withLock { $0.count(note) }
        if !isQuiet || Self.isProblem(note) { Output.note(Self.words(note)) }
    }

    /// Whether something is not watched, or not judged.
    private static func isProblem(_ note: WatchNote) -> Bool {
        switch note {
        case .watching, .foundLoop, .foundPool, .newProgram, .ended: false
        case .unprovenPool, .namelessPools, .noLoop, .unjudged, .sharedDescriptor, .unproven, .refused, .unarmed,
            .unreadable, .crowded, .namelessScript:
            true
        }
    }

    static func words(_ note: WatchNote) -> String {
        switch note {
        case .watching(let id, let name): "watching process \(id) (\(name))"
        case .foundLoop(let id, let thread, let loop): "found a loop of process \(id): thread \(thread) (\(loop))"
        case .foundPool(let id, let pool, let width):
            "found a task pool of process \(id): \(pool), \(quantity(width, "job")) at once"
        case .unprovenPool(let id, let pool, let hasBreakpoints):
            "no worker of the task pool of process \(id) (\(pool)) is free, and it is unknown whether they go from job to job: only "
                + "uninterrupted system calls of its workers are reported as stalls; " + missing(hasBreakpoints)
        case .namelessPools(let id):
            "the task pool of process \(id) is not judged, because its libdispatch has no symbol table; " + remedy(id)
        case .noLoop(let id, let name, let threads, let mainPolls, let children):
            "no event loop was found in process \(id) (\(name)) so far; what its threads do: "
                + threads.map { $0.count == 1 ? $0.what : "\($0.what) (\($0.count))" }.joined(separator: ", ")
                + (mainPolls ? remedyOfPolls : "")
                + (children > 0 ? "; --follow also watches its \(quantity(children, "child process"))" : "")
        case .unjudged(let id, let threads, let mainPolls):
            "of process \(id) these threads are not judged, because it is unknown whether they run a loop: "
                + threads.prefix(8).map { "\($0.name) (\($0.what))" }.joined(separator: ", ")
                + (threads.count > 8 ? " and \(threads.count - 8) more" : "") + (mainPolls ? remedyOfPolls : "") + "; "
                + remedy(id)
        case .sharedDescriptor(let id, let descriptor, let threads):
            "\(threads) threads of process \(id) take turns at descriptor \(descriptor): none of them has a loop of its own, "
                + "so they are not judged; " + remedy(id)
        case .unproven(let id, let thread, let loop, let hasBreakpoints):
            "thread \(thread) (\(loop)) of process \(id) is busy, and it is unknown whether its loop turns: only uninterrupted "
                + "system calls of this loop are reported as stalls; " + missing(hasBreakpoints)
        case .newProgram(let id, let name): "process \(id) runs another program: \(name)"
        case .ended(let id, let name): "process \(id) (\(name)) has ended"
        case .refused(let id, let error):
            "process \(id) is a child of a watched one, and cannot be watched: \(error.sentence)"
        case .unreadable(let id, let name):
            "process \(id) (\(name)) can no longer be watched: it runs as another user now, does not let others read it, or, with "
                + "ptrace_scope 1, is no longer a descendant of this command; root can watch it"
        case .crowded(let id, let openFiles):
            "some threads of process \(id) are not watched: this command may open \(openFiles) files, and needs three for each thread; "
                + "raise its hard limit ('ulimit -Hn', or LimitNOFILE= of a unit)"
        case .namelessScript(let id, let name, let options):
            "stalls of process \(id) (\(name)) do not show the functions of its script: start it with \(options)"
        case .unarmed(let problem): problem
        }
    }

    /// What is missing for a proof that a loop or a pool is stalled.
    private static func missing(_ hasBreakpoints: Bool) -> String {
        hasBreakpoints
            ? "no hardware breakpoint could be set there, perhaps because a debugger, or another 'watch', uses all that a thread has"
            : "with hardware breakpoints it could be judged, see 'stall-monitor watch --help'"
    }

    /// What to do about a main thread that polls like a client.
    private static let remedyOfPolls =
        "; if the main thread runs an event loop, as of GLib or Qt, --main-loop judges it"

    /// What to do about threads that cannot be judged.
    private static func remedy(_ process: Int32) -> String {
        "'stall-monitor sample \(process) --all --for 5s' shows what they do, and a Swift program that links StallMonitorLoops "
            + "reports their stalls itself"
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
