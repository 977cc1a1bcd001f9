import Logging
import StallReports
import Synchronization

@testable import StallMonitor

/// The lines of a log, in memory.
final class LogLines: Sendable {
    struct Line: Sendable {
        var level: Logger.Level
        var text: String
        var metadata: Logger.Metadata
    }

    private let lines = Mutex<[Line]>([])
    var all: [Line] { lines.withLock { $0 } }
    func add(_ line: Line) { lines.withLock { $0.append(line) } }
}

struct MemoryLog: LogHandler {
    let lines: LogLines
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.trace

    init(lines: LogLines) { self.lines = lines }

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
        get { metadata[key] }
        set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
        lines.add(.init(level: event.level, text: "\(event.message)", metadata: event.metadata ?? [:]))
    }
}

extension SuppressedStall {
    /// A stall of the main loop that was only counted, as one of so many.
    static func repeated(times: Int) -> SuppressedStall {
        SuppressedStall(
            fingerprint: Fingerprint(rawValue: "v2:0000000000000001")!,
            kind: .blocked,
            reason: .repeated,
            type: .runLoop,
            label: "main",
            startedAt: .now(),
            durationNs: 7_000_000,
            repeats: .init(count: times, report: nil, firstAt: .now(), lastAt: .now(), totalNs: 1, longestNs: 1)
        )
    }
}
