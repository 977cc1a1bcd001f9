import StallReports

/// What `sample` found: its JSON, and what the other formats are made from. Frames, threads, modules and system calls are as in a
/// stall report. Keys may be added within a schema's version; none changes its meaning.
struct SampleDocument: Encodable {
    let schema = "stall-sample/1"
    var process: Process
    var startedAt: Timestamp
    /// From the first look to the last, or to when the process was found to have ended.
    var durationNs: Int64
    /// As asked for. Nil for a single look.
    var intervalNs: Int64?
    /// Times that the threads were looked at.
    var samples: Int
    /// Times that this was due, and the command was not ready.
    var missed: Int
    var ended: Ending
    /// Those seen most often first.
    var stacks: [Stack]
    var failures: [Failure]
    var modules: [StallReport.Module]
    var cost: Cost

    struct Process: Encodable {
        var id: Int32
        /// As the process calls itself: `comm` in proc(5).
        var name: String?
        var executable: String?
        /// Its other threads live on. Nil if it lives, too.
        var firstThreadEnded: Bool?

        private enum CodingKeys: String, CodingKey {
            case id, name, executable
            case firstThreadEnded = "first_thread_ended"
        }
    }

    enum Ending: String, Encodable {
        /// The look, or the whole time, is done.
        case complete
        /// Ctrl-C.
        case interrupted
        case processEnded = "process_ended"
    }

    /// Equal calls, wherever in their functions: of one thread at several moments, or of several threads.
    struct Stack: Encodable {
        /// All together.
        var count: Int
        var threads: [Sighting]
        /// `quiet`: the thread slept, and noticed nothing. `stopped`: it ran, and was stopped for the copy.
        var method: String
        /// What it slept in. The arguments are those of the first time.
        var systemCall: StallReport.SystemCall?
        /// How long the thread was stopped, all times together.
        var heldNs: Int64
        var complete: Bool
        /// Why it ends early.
        var error: String?
        /// Innermost first. Addresses are those of the first time.
        var frames: [StallReport.Frame]
        /// The gap between the two ends of a deep stack.
        var leftOut: StallReport.LeftOut?
        /// Who awaits the functions on it. Nil without an asynchronous function. The task is that of the first time.
        var async: StallReport.AsyncCallers?

        private enum CodingKeys: String, CodingKey {
            case count, threads, method
            case systemCall = "system_call"
            case heldNs = "held_ns"
            case complete, error, frames
            case leftOut = "left_out"
            case async
        }
    }

    struct Sighting: Encodable {
        /// As it was the first time.
        var thread: StallReport.Thread
        var count: Int
    }

    /// A thread whose stack could not be taken, and why.
    struct Failure: Encodable {
        var thread: StallReport.Thread
        /// A stable name: `not_stopped`.
        var code: String
        var message: String
        var count: Int
    }

    /// What the process has noticed, and what the command took itself.
    struct Cost: Encodable {
        /// Times that one of its threads was stopped.
        var stops: Int64
        /// How long they stood at most.
        var heldNs: Int64
        var longestHeldNs: Int64
        /// How long they waited for a processor besides, before they could stop and until they ran on.
        var waitedNs: Int64
        /// System calls that a stop came upon, and that were started again with their whole timeout.
        var callsRestarted: Int64
        /// Stops that did not come in time and were given up.
        var stopsGivenUp: Int64
        /// Processor time of the command itself, from its start, with that for finding names.
        var samplerCPUNs: Int64

        private enum CodingKeys: String, CodingKey {
            case stops
            case heldNs = "held_ns"
            case longestHeldNs = "longest_held_ns"
            case waitedNs = "waited_ns"
            case callsRestarted = "calls_restarted"
            case stopsGivenUp = "stops_given_up"
            case samplerCPUNs = "sampler_cpu_ns"
        }
    }

    private enum CodingKeys: String, CodingKey {
        case schema, process
        case startedAt = "started_at"
        case durationNs = "duration_ns"
        case intervalNs = "interval_ns"
        case samples, missed, ended, stacks, failures, modules, cost
    }
}
