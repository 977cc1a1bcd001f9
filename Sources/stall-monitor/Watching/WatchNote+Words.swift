import ProcessWatch
import StackCapture
import StallReports

extension WatchNote {
    /// Whether something is not watched, or not judged.
    var isProblem: Bool {
        switch self {
        case .watching, .foundLoop, .foundPool, .newProgram, .ended: false
        case .unprovenPool, .namelessPools, .noLoop, .unjudged, .sharedDescriptor, .unproven, .refused, .unarmed,
            .unreadable, .crowded, .namelessScript:
            true
        }
    }

    /// What the command says of it on standard error.
    var words: String {
        switch self {
        case .watching(let id, let name): "watching process \(id) (\(name))"
        case .foundLoop(let id, let thread, let loop): "found a loop of process \(id): thread \(thread) (\(loop))"
        case .foundPool(let id, let pool, let width):
            "found a task pool of process \(id): \(pool), \(quantity(width, "job")) at once"
        case .unprovenPool(let id, let pool, let hasBreakpoints):
            "no worker of the task pool of process \(id) (\(pool)) is free, and it is unknown whether they go from job to job: only "
                + "uninterrupted system calls of its workers are reported as stalls; " + Self.missing(hasBreakpoints)
        case .namelessPools(let id):
            "the task pool of process \(id) is not judged, because its libdispatch has no symbol table; "
                + Self.remedy(id)
        case .noLoop(let id, let name, let threads, let mainPolls, let children):
            "no event loop was found in process \(id) (\(name)) so far; what its threads do: "
                + threads.map { $0.count == 1 ? $0.what : "\($0.what) (\($0.count))" }.joined(separator: ", ")
                + (mainPolls ? Self.remedyOfPolls : "")
                + (children > 0 ? "; --follow also watches its \(quantity(children, "child process"))" : "")
        case .unjudged(let id, let threads, let mainPolls):
            "of process \(id) these threads are not judged, because it is unknown whether they run a loop: "
                + threads.prefix(8).map { "\($0.name) (\($0.what))" }.joined(separator: ", ")
                + (threads.count > 8 ? " and \(threads.count - 8) more" : "") + (mainPolls ? Self.remedyOfPolls : "")
                + "; " + Self.remedy(id)
        case .sharedDescriptor(let id, let descriptor, let threads):
            "\(threads) threads of process \(id) take turns at descriptor \(descriptor): none of them has a loop of its own, "
                + "so they are not judged; " + Self.remedy(id)
        case .unproven(let id, let thread, let loop, let hasBreakpoints):
            "thread \(thread) (\(loop)) of process \(id) is busy, and it is unknown whether its loop turns: only uninterrupted "
                + "system calls of this loop are reported as stalls; " + Self.missing(hasBreakpoints)
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
}
