import RunLoopKit
import StallReports

/// Tells the handler why reports are not written, and when they are written again: the directory may be missing, full, read-only,
/// open to others or not responding, and work again later. Confined to the reporter's thread.
struct WritingFaults {
    /// The name of the directory, or of another sink.
    private let sink: String
    private var notifier: FaultNotifier

    init(of sink: String, _ notifier: FaultNotifier) { (self.sink, self.notifier) = (sink, notifier) }

    /// Reports what has changed since the last status.
    ///
    /// - Parameter lost: How many reports of this run are lost.
    mutating func note(_ status: ReportWriter.Status, lost: Int64) {
        if status.hangs(at: .now) {
            notifier.notify(StallMonitorError(.reportDirectoryHangs, detail(of: status)))
        } else if status.busy == nil, status.lastStep < ReportWriter.writeTimeout {
            notifier.mended(.reportDirectoryHangs)
        }
        if let problem = status.problem {
            let detail = "\(sink): \(problem). \(detail(of: status))"
            notifier.notify(StallMonitorError(.reportNotWritten, errno: problem.errorNumber, detail))
        } else {
            notifier.mended(.reportNotWritten)
        }
        note(status.concerns, [.link, .openToOthers], as: .reportDirectoryExposed)
        note(status.concerns, [.filled], as: .reportDirectoryFilled)
        if lost > 0 { notifier.notify(StallMonitorError(.reportsLost, Self.losses(lost, status.problem))) }
    }

    /// Reports all losses of the run, even if some were reported before.
    func noteFinalLoss(of lost: Int64, _ status: ReportWriter.Status) {
        guard lost > 0 else { return }
        notifier.notifyAgain(StallMonitorError(.reportsLost, Self.losses(lost, status.problem)))
    }

    /// Reports a problem of the directory once, and its end once.
    private mutating func note(
        _ concerns: Set<ReportDirectory.Concern>,
        _ kinds: [ReportDirectory.Concern],
        as code: StallMonitorError.Code
    ) {
        let found = kinds.filter(concerns.contains)
        guard !found.isEmpty else { return notifier.mended(code) }
        notifier.notify(StallMonitorError(code, found.map { $0.advice(for: sink) }.joined(separator: " Also: ")))
    }

    private func detail(of status: ReportWriter.Status) -> String {
        switch status.waitingReports {
        case 0: "What comes is kept in memory, and written when \(sink) can be written again."
        case 1: "1 report of this run waits in memory, and is written when \(sink) can be written again."
        case let count:
            "\(count) reports of this run wait in memory, and are written when \(sink) can be written again."
        }
    }

    private static func losses(_ count: Int64, _ problem: ReportError?) -> String {
        let reason = problem?.description ?? "there was no time left, or the disk did not answer"
        return "\(count) \(count == 1 ? "report is" : "reports are") lost: \(reason)."
    }
}

/// Passes each fault to the handler once, and its end once.
struct FaultNotifier {
    private var reported: [StallMonitorError.Code: StallMonitorError] = [:]
    private let handler: @Sendable (StallEvent) -> Void

    init(_ handler: @escaping @Sendable (StallEvent) -> Void) {
        self.handler = handler
    }

    mutating func notify(_ error: StallMonitorError) {
        guard reported[error.code] == nil else { return }
        reported[error.code] = error
        handler(.fault(error))
    }

    mutating func mended(_ code: StallMonitorError.Code) {
        if let error = reported.removeValue(forKey: code) { handler(.mended(error)) }
    }

    /// Reports it even if it was reported before.
    func notifyAgain(_ error: StallMonitorError) {
        handler(.fault(error))
    }
}
