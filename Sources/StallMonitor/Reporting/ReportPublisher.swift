import RunLoopKit
import StallReports

/// The reporter's side of writing. The directory may be missing, full, read-only or not responding, and work again later.
/// Confined to the reporter's thread, which waits for a working disk, so that a handler finds the report on disk. It does not
/// wait for one that hangs.
struct ReportPublisher {
    private let writer: ReportWriter
    private var notifier: FaultNotifier
    /// Whether the disk did not answer in time. The reporter does not wait for it until it answers.
    private var isBehind = false
    /// Whether only the run record is still written. Waiting reports are lost then.
    private var isSettled = false
    private var unencodable = 0 { didSet { noteUnmade() } }
    /// Numbers of the stalls that were not handled when `stop` could wait no longer.
    private var abandoned: Set<Int> = [] { didSet { noteUnmade() } }

    init(writer: ReportWriter, notifier: FaultNotifier) {
        self.writer = writer
        self.notifier = notifier
    }

    /// Reports that will not reach the disk, or only in an old version. After `settle`, waiting reports are included.
    var lostWrites: Int64 { lost(writer.status) }
    /// Reports that wait because the disk refuses them or does not answer. Zero while the disk works, because the reporter waits
    /// for each write.
    var waitingReports: Int {
        let status = writer.status
        return isBehind || status.problem != nil ? status.waitingReports : 0
    }
    var bytesWritten: Int64 { writer.status.bytesWritten }

    /// The state of writing, for the run record.
    var record: RunRecord.Writing {
        let status = writer.status
        return .init(
            waiting: isSettled ? 0 : Int64(status.waitingReports),
            waitingBytes: isSettled ? 0 : Int64(status.waitingBytes),
            failures: Int64(status.failures),
            longestNs: status.longestWrite.nanoseconds,
            problem: status.problem?.code.name,
            peakBytes: Int64(status.peakBytes),
            concerns: status.concerns.isEmpty ? nil : status.concerns.map(\.rawValue).sorted()
        )
    }

    /// Prepares the directory, and closes the reports that dead processes left unfinished.
    mutating func prepare() {
        writer.order { $0.prepare() }
        listen()
    }

    /// Whether there is time left to make a report from a notice. False only in the last second that `stop` waits.
    mutating func hasTime(for notice: StallNotice) -> Bool {
        guard let end = writer.givesUpAt, MonotonicInstant.now >= end else { return true }
        switch notice {
        case .began(let observation): abandoned.insert(observation.number)
        case .ended(let number, _, _), .abandoned(let number, _, _): abandoned.insert(number)
        default: break
        }
        return false
    }

    mutating func put(_ report: StallReport) {
        put(ReportFileName(.stall, report.id), isFinal: report.state != .ongoing) { () throws(ReportError) in
            try report.json()
        }
    }

    mutating func put(_ record: RunRecord) {
        put(ReportFileName(.run, record.id), isFinal: record.state != .running) { () throws(ReportError) in
            try record.json()
        }
    }

    /// Tries the waiting reports once more. After that they are lost.
    mutating func settle() {
        writer.order { $0.retryNow() }
        // The writer may be working normally, and only the reporter be late.
        let moment = MonotonicInstant.now + .milliseconds(200)
        isBehind = !writer.wait(until: max(moment, writer.givesUpAt ?? .now + ReportWriter.writeTimeout))
        isSettled = true
        let lost = lostWrites
        if lost > 0 { notifier.notifyAgain(StallMonitorError(.reportsLost, Self.losses(lost, writer.status.problem))) }
    }

    /// The last order to the writer.
    func close() {
        writer.order { $0.close() }
    }

    private mutating func put(
        _ name: ReportFileName,
        isFinal: Bool,
        _ encode: () throws(ReportError) -> [UInt8]
    ) {
        do throws(ReportError) {
            let document = PendingDocument(name: name, bytes: try encode(), isFinal: isFinal)
            writer.order { $0.put(document) }
        } catch {
            unencodable += name.content == .stall ? 1 : 0
        }
        listen()
    }

    /// Waits for the disk, if it works, and reports its faults.
    private mutating func listen() {
        if !writer.status.hangs(at: .now), !isBehind || writer.status.isQuick {
            isBehind = !writer.wait(until: .now + ReportWriter.writeTimeout)
        }
        let status = writer.status
        if status.hangs(at: .now) {
            notifier.notify(StallMonitorError(.reportDirectoryHangs, detail(of: status)))
        } else if status.busy == nil, status.lastStep < ReportWriter.writeTimeout {
            notifier.mended(.reportDirectoryHangs)
        }
        if let problem = status.problem {
            let detail = "\(writer.sinkName): \(problem). \(detail(of: status))"
            notifier.notify(StallMonitorError(.reportNotWritten, errno: problem.errorNumber, detail))
        } else {
            notifier.mended(.reportNotWritten)
        }
        notify(status.concerns, [.link, .openToOthers], as: .reportDirectoryExposed)
        notify(status.concerns, [.filled], as: .reportDirectoryFilled)
        if lost(status) > 0, !isSettled {
            notifier.notify(StallMonitorError(.reportsLost, Self.losses(lost(status), status.problem)))
        }
    }

    /// Reports a problem of the directory once, and its end once.
    private mutating func notify(
        _ concerns: Set<ReportDirectory.Concern>,
        _ kinds: [ReportDirectory.Concern],
        as code: StallMonitorError.Code
    ) {
        let found = kinds.filter(concerns.contains)
        guard !found.isEmpty else { return notifier.mended(code) }
        let path = writer.sinkName
        notifier.notify(StallMonitorError(code, found.map { $0.advice(for: path) }.joined(separator: " Also: ")))
    }

    private func lost(_ status: ReportWriter.Status) -> Int64 {
        Int64(status.unmade + status.lost + (isSettled ? status.waitingReports : 0))
    }

    /// Makes the number visible to other threads.
    private func noteUnmade() { writer.note(unmade: unencodable + abandoned.count) }

    private func detail(of status: ReportWriter.Status) -> String {
        let path = writer.sinkName
        return switch status.waitingReports {
        case 0: "What comes is kept in memory, and written when \(path) can be written again."
        case 1: "1 report of this run waits in memory, and is written when \(path) can be written again."
        case let count:
            "\(count) reports of this run wait in memory, and are written when \(path) can be written again."
        }
    }

    private static func losses(_ count: Int64, _ problem: ReportError?) -> String {
        let reason = problem?.description ?? "there was no time left, or the disk did not answer"
        return "\(count) \(count == 1 ? "report is" : "reports are") lost: \(reason)."
    }
}
