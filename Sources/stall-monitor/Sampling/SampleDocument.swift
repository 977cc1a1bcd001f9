import StallExport
import StallReports

/// The result of `sample`: its JSON, and the source of the other formats. Frames, threads, modules and system calls are as in a
/// stall report. A schema version may gain keys, but keys never change their meaning.
struct SampleDocument: Encodable {
    let schema = "stall-sample/1"
    var process: Process
    var startedAt: Timestamp
    /// From the first sample to the last, or to the end of the process.
    var durationNs: Int64
    /// The requested interval. Nil for a single sample.
    var intervalNs: Int64?
    /// Rounds of samples.
    var samples: Int
    /// Rounds that were missed because the command was late.
    var missed: Int
    var ended: Ending
    /// Most frequent first.
    var stacks: [Stack]
    var failures: [Failure]
    var modules: [StallReport.Module]
    var cost: Cost

    struct Process: Encodable {
        var id: Int32
        /// The process's own name: `comm` in proc(5).
        var name: String?
        var executable: String?
        /// The first thread has ended, others are alive. Nil if it is alive.
        var firstThreadEnded: Bool?

        private enum CodingKeys: String, CodingKey {
            case id, name, executable
            case firstThreadEnded = "first_thread_ended"
        }
    }

    enum Ending: String, Encodable {
        /// All requested samples were taken.
        case complete
        /// Interrupted by Ctrl-C.
        case interrupted
        case processEnded = "process_ended"
    }

    /// Samples with equal calls at any addresses in their functions: of one thread at several times, or of several threads.
    struct Stack: Encodable {
        /// The number of these samples.
        var count: Int
        var threads: [Sighting]
        /// `quiet`: the thread slept and was not disturbed. `stopped`: it ran and was stopped while its stack was copied.
        var method: String
        /// The call it slept in. The arguments are those of the first sample.
        var systemCall: StallReport.SystemCall?
        /// Total time that the thread was stopped.
        var heldNs: Int64
        var complete: Bool
        /// Why it ends early.
        var error: String?
        /// Innermost first. Addresses are those of the first sample.
        var frames: [StallReport.Frame]
        /// The gap between the two ends of a deep stack.
        var leftOut: StallReport.LeftOut?
        /// The functions that await it. Nil without an asynchronous function. The task is that of the first sample.
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
        /// As in the first sample.
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

    /// The cost to the process, and to the command itself.
    struct Cost: Encodable {
        /// Times that one of its threads was stopped.
        var stops: Int64
        /// Total and longest time that threads were stopped.
        var heldNs: Int64
        var longestHeldNs: Int64
        /// Additional waits for a CPU, before stopping and after resuming.
        var waitedNs: Int64
        /// System calls that a stop interrupted and that restarted with their full timeout.
        var callsRestarted: Int64
        /// Stops that were given up at the deadline.
        var stopsGivenUp: Int64
        /// CPU time of the command itself since its start, including symbolication.
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

extension SampleDocument {
    /// Merged stacks for flame graphs, by thread. An asynchronous function is shown above the functions that await it, in place of
    /// the executor's frames. Code of the executable is own.
    var merged: WeightedStacks {
        var merged = WeightedStacks(unit: .samples)
        for stack in stacks {
            var shown = reported(stack)
            for index in shown.frames.indices {
                let module = shown.frames[index].module.map { modules[$0].path }
                shown.frames[index].own = module != nil && module == process.executable
            }
            for sighting in stack.threads {
                merged.add(sighting.count, of: sighting.thread.numberAndName, shown, modules, at: startedAt)
            }
        }
        return merged
    }

    /// `redis-server (4711)`.
    var subject: String { process.name.map { "\($0) (\(process.id))" } ?? "process \(process.id)" }
}
