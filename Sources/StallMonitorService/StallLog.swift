#if !Service
    #error("StallMonitorService needs the package's trait: .package(url: …, from: …, traits: [\"Service\"])")
#endif

public import Logging
public import StallMonitor
import StallReports

/// Writes the monitor's events to a log: one message when a stall begins, one when it ends, one for each fault
/// and its end. The monitor limits the number of reported stalls: see `RepeatRule`.
///
///     StallMonitor.start(onEvent: StallLog(logger).callAsFunction)
public struct StallLog: Sendable {
    /// The form of the messages.
    public enum Form: Hashable, Sendable {
        /// One line. The figures are the message's metadata. For log collectors.
        case line
        /// Several lines: place, cause, and the server's own functions on the stack. The metadata has only the report's id. For a terminal.
        case lines
    }

    private let logger: Logger
    private let level: Logger.Level
    private let form: Form

    /// - Parameters:
    ///   - logger: The destination.
    ///   - level: The level of messages about stalls. By default `info`, because a library should not decide what deserves a
    ///     warning. That the monitor itself is impaired is at least a warning.
    ///   - form: One line by default.
    public init(_ logger: Logger, level: Logger.Level = .info, form: Form = .line) {
        (self.logger, self.level, self.form) = (logger, level, form)
    }

    /// Logs the event. Any thread.
    public func callAsFunction(_ event: StallEvent) {
        switch event {
        case .began(let report): log(report.logSubject.stalled, report)
        case .grew: break
        case .ended(let report) where report.state == .abandoned:
            log(report.logSubject.stalled + ", no longer watched", report)
        case .ended(let report): log(report.logSubject.over, report)
        case .suppressed(let stall): logSuppressed(stall)
        case .fault(let error): logOwnState("stall monitor impaired", error)
        case .mended(let error): logOwnState("stall monitor works again", error)
        }
    }

    /// Uses at least the level of a warning: stalls may be missed meanwhile.
    private func logOwnState(_ message: Logger.Message, _ error: StallMonitorError) {
        logger.log(level: max(level, .warning), message, metadata: ["error": "\(error)"])
    }

    /// Uses a lower level than the other messages, because these stalls are frequent.
    private func logSuppressed(_ stall: SuppressedStall) {
        logger.debug(
            "\(LogSubject(stall.kind, stall.type).stalled) again",
            metadata: [
                "stall.kind": "\(stall.kind.rawValue)",
                "stall.type": "\(stall.type.rawValue)",
                "stall.loop": "\(stall.label)",
                "stall.duration_ms": "\(stall.durationNs / 1_000_000)",
                "stall.fingerprint": "\(stall.fingerprint)",
                "stall.repeats": "\(stall.repeats.count)",
            ]
        )
    }

    private func log(_ message: String, _ report: StallReport) {
        guard form == .line else {
            let text = ([message + report.logHeadline] + report.logLines).joined(separator: "\n    ")
            logger.log(level: level, "\(text)", metadata: ["stall.id": "\(report.id)"])
            return
        }
        var metadata: Logger.Metadata = [
            "stall.id": "\(report.id)",
            "stall.kind": "\(report.kind.rawValue)",
            "stall.type": "\(report.watched.type.rawValue)",
            "stall.loop": "\(report.watched.label)",
            "stall.duration_ms": "\(report.durationNs / 1_000_000)",
            "stall.verdict": "\(report.cause.verdict.canonical.rawValue)",
            "stall.culprit": "\(report.culpritName ?? "unknown")",
            "stall.fingerprint": "\(report.fingerprint)",
        ]
        if let place = report.culprit?.place { metadata["stall.place"] = "\(place)" }
        if let labels = report.labels { metadata["stall.labels"] = "\(labels.joined(separator: " > "))" }
        // OpenTelemetry's names for them in logs that are not its own.
        if let trace = report.trace?.traceID { metadata["trace_id"] = "\(trace)" }
        if let span = report.trace?.spanID { metadata["span_id"] = "\(span)" }
        logger.log(level: level, "\(message)", metadata: metadata)
    }
}

/// What a message is about: the beginning of a stall, and its end.
private struct LogSubject {
    let stalled: String
    let over: String

    init(_ kind: StallKind, _ type: WatchedType) {
        // It is no stall: other workers serve the other jobs.
        guard kind != .longJob else {
            (stalled, over) = ("long job in a task pool", "long job ended")
            return
        }
        let name =
            switch type {
            case .taskPool: "task pool"
            case .queue: "serial queue"
            default: "event loop"
            }
        (stalled, over) = ("\(name) stalled", "\(name) recovered")
    }
}

extension StallReport {
    fileprivate var logSubject: LogSubject { LogSubject(kind, watched.type) }

    /// `: main, 600ms, waiting`
    fileprivate var logHeadline: String {
        ": \(watched.label), \(DurationText(nanoseconds: durationNs).short), \(cause.verdict.canonical.rawValue)"
    }

    fileprivate var logLines: [String] {
        var lines: [String] = []
        if let name = culpritName { lines.append("Where   \(name)\(Self.logPlace(culprit?.place))") }
        if !cause.summary.isEmpty { lines.append("Why     \(cause.summary)") }
        if let labels { lines.append("Work    \(labels.joined(separator: " > "))") }
        lines += ownFrames.map { "Stack   \($0.function ?? "\($0.address)")\(Self.logPlace($0.sourcePlace))" }
        return lines + ["Report  \(id)"]
    }

    /// `  Checkout.swift:12`. Empty without a place.
    private static func logPlace(_ place: String?) -> String { place.map { "  \($0)" } ?? "" }

    /// The server's own functions on the stack, innermost first, at most 16.
    private var ownFrames: [Frame] {
        let stack = stacks.first { $0.role == .stalled }
        return Array((stack.map { $0.frames + ($0.async?.frames ?? []) } ?? []).filter(\.own).prefix(16))
    }
}
