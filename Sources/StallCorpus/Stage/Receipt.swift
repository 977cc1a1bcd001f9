import FoundationEssentials
import Glibc
import RunLoopKit
import StallReports

/// What a scenario recorded: when its place was stalled, measured by
/// the stalled code itself and by the kernel's counters of its thread.
struct Receipt: Codable, Sendable {
    /// The stalls that were made.
    var stalls: [Span] = []
    /// Turns that were meant to be short and were not, because the machine was busy.
    var slowTurns: [Span] = []
    /// The reason why the scenario was not played.
    var skipped: String?
    /// The reason of a failure.
    var failure: String?

    /// The time that a thread spent in one piece of work.
    struct Span: Codable, Sendable {
        /// The label of the loop in reports.
        var label: String
        var startedAt: Timestamp
        var endedAt: Timestamp
        var wallNs: Int64
        /// Time on a CPU.
        var cpuNs: Int64
        /// Time ready to run, without a CPU.
        var runDelayNs: Int64
    }
}

/// A running measurement of a piece of work on the calling thread.
struct Measurement: Sendable {
    private let label: String
    private let startedAt = Timestamp.now()
    private let start = MonotonicInstant.now
    private let before = ThreadAccount.now()

    init(label: String) { self.label = label }

    /// The time up to now. On another thread than the measured one, the thread's counters are left out.
    func span(onOwnThread: Bool = true) -> Receipt.Span {
        let (end, wall) = (Timestamp.now(), MonotonicInstant.now.nanoseconds - start.nanoseconds)
        let after = onOwnThread ? ThreadAccount.now() : before
        return Receipt.Span(
            label: label,
            startedAt: startedAt,
            endedAt: end,
            wallNs: Int64(wall),
            cpuNs: after.cpuNs - before.cpuNs,
            runDelayNs: after.runDelayNs - before.runDelayNs
        )
    }
}

/// The kernel's counters of the calling thread (proc(5), `schedstat`).
struct ThreadAccount {
    var cpuNs: Int64
    var runDelayNs: Int64

    static func now() -> ThreadAccount {
        let fields = textOfFile("/proc/thread-self/schedstat").split(whereSeparator: \.isWhitespace).compactMap {
            Int64($0)
        }
        return fields.count < 2 ? .init(cpuNs: 0, runDelayNs: 0) : .init(cpuNs: fields[0], runDelayNs: fields[1])
    }
}

/// Prevents the optimiser from removing a computation.
@inline(never)
func keep(_ value: Int) {
    withExtendedLifetime(value) {}
}

extension Receipt {
    private static let fileName = "receipt.json"

    /// Writes it where the runner reads it.
    func write(in directory: String) {
        guard let json = try? JSONEncoder().encode(self) else { return }
        writeFile(String(decoding: json, as: UTF8.self), to: "\(directory)/\(Self.fileName)", creating: true)
    }

    /// Nil if the process did not write a receipt.
    init?(in directory: String) {
        guard let json = FileManager.default.contents(atPath: "\(directory)/\(Self.fileName)"),
            let receipt = try? JSONDecoder().decode(Receipt.self, from: json)
        else { return nil }
        self = receipt
    }
}
