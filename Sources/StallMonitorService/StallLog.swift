#if !Service
    #error("StallMonitorService needs the package's trait: .package(url: …, from: …, traits: [\"Service\"])")
#endif

public import Logging
public import StallMonitor
import StallReports

/// Writes the monitor's events to a log: one line when a stall begins, one when it ends, one for each fault
/// and its end.
///
///     StallMonitor.start(onEvent: StallLog(logger).callAsFunction)
public struct StallLog: Sendable {
    private let logger: Logger
    private let level: Logger.Level

    /// - Parameters:
    ///   - logger: where to write.
    ///   - level: of the lines about stalls. A library does not decide what is worth a warning, so `info` unless given.
    public init(_ logger: Logger, level: Logger.Level = .info) {
        self.logger = logger
        self.level = level
    }

    /// Logs the event. Any thread.
    public func callAsFunction(_ event: StallEvent) {
        switch event {
        case .began(let report): log("event loop stalled", report)
        case .grew: break
        case .ended(let report) where report.state == .abandoned: log("event loop stalled, no longer watched", report)
        case .ended(let report): log("event loop recovered", report)
        case .suppressed(let stall): logSuppressed(stall)
        case .fault(let error): logger.log(level: level, "stall monitor impaired", metadata: ["error": "\(error)"])
        case .mended(let error): logger.log(level: level, "stall monitor works again", metadata: ["error": "\(error)"])
        }
    }

    /// Not at the level of the others: it is because they come so often that these are not reported.
    private func logSuppressed(_ stall: SuppressedStall) {
        logger.debug(
            "event loop stalled again",
            metadata: [
                "stall.loop": "\(stall.label)",
                "stall.duration_ms": "\(stall.durationNs / 1_000_000)",
                "stall.fingerprint": "\(stall.fingerprint)",
                "stall.repeats": "\(stall.repeats.count)",
            ]
        )
    }

    private func log(_ message: Logger.Message, _ report: StallReport) {
        logger.log(
            level: level,
            message,
            metadata: [
                "stall.id": "\(report.id)",
                "stall.loop": "\(report.watched.label)",
                "stall.duration_ms": "\(report.durationNs / 1_000_000)",
                "stall.verdict": "\(report.cause.verdict)",
                "stall.culprit": "\(report.culpritName ?? "unknown")",
                "stall.fingerprint": "\(report.fingerprint)",
            ]
        )
    }
}
