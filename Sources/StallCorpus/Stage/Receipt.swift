import FoundationEssentials
import Glibc
import RunLoopKit
import StallReports

/// What a scenario says of itself: when its place stood still, by the stalled code's own clock and the kernel's account of its thread.
struct Receipt: Codable, Sendable {
    /// The stalls that were made.
    var stalls: [Span] = []
    /// Turns that were to be short and were not, because the machine was busy.
    var slowTurns: [Span] = []
    /// Why the scenario was not played.
    var skipped: String?
    /// What went wrong.
    var failure: String?

    /// A stretch of time that a thread spent in one piece of work.
    struct Span: Codable, Sendable {
        /// The loop that it belongs to, as reports call it.
        var label: String
        var startedAt: Timestamp
        var endedAt: Timestamp
        var wallNs: Int64
        /// On a CPU.
        var cpuNs: Int64
        /// Ready to run, without a CPU.
        var runDelayNs: Int64
    }
}

/// A piece of work on the calling thread that is being measured.
struct Measurement: Sendable {
    private let label: String
    private let startedAt = Timestamp.now()
    private let start = MonotonicInstant.now
    private let before = ThreadAccount.now()

    init(label: String) { self.label = label }

    /// So far. On another thread than the one that is measured its account is left out.
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

/// What the kernel has counted of the calling thread (proc(5), `schedstat`).
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

/// Keeps the optimiser from dropping what was computed.
@inline(never)
func keep(_ value: Int) {
    withExtendedLifetime(value) {}
}

extension Receipt {
    private static let fileName = "receipt.json"

    /// Leaves it where the runner finds it.
    func write(in directory: String) {
        guard let json = try? JSONEncoder().encode(self) else { return }
        writeFile(String(decoding: json, as: UTF8.self), to: "\(directory)/\(Self.fileName)", creating: true)
    }

    /// Nil when the process has not come so far.
    init?(in directory: String) {
        guard let json = FileManager.default.contents(atPath: "\(directory)/\(Self.fileName)"),
            let receipt = try? JSONDecoder().decode(Receipt.self, from: json)
        else { return nil }
        self = receipt
    }
}
