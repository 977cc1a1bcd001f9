import RunLoopKit
import StallReports

/// Hands reports and the run record to the writer. Confined to the reporter's thread, which waits for a working disk, so that a
/// handler finds the report on disk. It does not wait for one that hangs.
struct ReportPublisher {
    private let writer: ReportWriter
    private var faults: WritingFaults
    /// Whether the disk did not answer in time. The reporter does not wait for it until it answers.
    private var isBehind = false
    /// Whether only the run record is still written. Waiting reports are lost then.
    private var isSettled = false
    private var unencodable = 0 { didSet { noteUnmade() } }
    /// Numbers of the stalls that were not handled when `stop` could wait no longer.
    private var abandoned: Set<Int> = [] { didSet { noteUnmade() } }

    /// - Parameter tell: Called when the reports cannot be written, and when they can be written again.
    init(writer: ReportWriter, tell: @escaping @Sendable (StallEvent) -> Void) {
        self.writer = writer
        faults = WritingFaults(of: writer.sinkName, tell)
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

    /// Whether there is time left to make a report from a notice. False only in the last second that `stop` waits: then the notice is not
    /// handled, and its stall counts as one without a report.
    mutating func hasTime(for notice: StallNotice) -> Bool {
        guard writer.hasGivenUp else { return true }
        switch notice {
        case .began(let observation): abandoned.insert(observation.number)
        case .ended(let number, _, _, _): abandoned.insert(number)
        default: break
        }
        return false
    }

    mutating func put(_ report: StallReport) {
        put(ReportFileName(.stall, report.id), isFinal: report.state != .ongoing) { () throws(ReportError) in
            let bytes = try report.json()
            // The writer refuses it, because no reader would open it.
            return bytes.count > StoredDocuments.maximumFileSize ? try report.withoutOtherThreads.json() : bytes
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
        // Waits a moment in any case: the writer may be working normally, and only the reporter be late.
        var moments = EngineParts.endPatience / .milliseconds(200)
        repeat {
            isBehind = !isIdle(within: .milliseconds(200))
            moments -= 1
        } while isBehind && !writer.hasGivenUp && moments > 0
        isSettled = true
        faults.noteFinalLoss(of: lostWrites, writer.status)
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
        var status = writer.status
        // Also for a step that is overdue by the clock: the process may have been stopped since the step began.
        if !isBehind || (status.isQuick && !status.isOverdue(at: .now)) {
            isBehind = !isIdle(within: ReportWriter.writeTimeout)
        }
        status = writer.status
        // At the end the losses are reported once more, all together.
        faults.note(status, lost: isSettled ? 0 : lost(status))
    }

    /// Waits until the writer has tried everything. False after this time, in which the process was not stopped.
    private func isIdle(within time: Duration) -> Bool {
        var patience = time
        return writer.wait(within: &patience)
    }

    private func lost(_ status: ReportWriter.Status) -> Int64 {
        Int64(status.unmade + status.lost + (isSettled ? status.waitingReports : 0))
    }

    /// Makes the number visible to other threads.
    private func noteUnmade() { writer.note(unmade: unencodable + abandoned.count) }
}

extension StallReport {
    /// Without the stacks of the other threads. They are the last ones, so the indices of the others stay valid.
    fileprivate var withoutOtherThreads: StallReport {
        var report = self
        report.stacks.removeAll { $0.role == .other }
        report.cause.summary += " The report has no room for the stacks of the other threads."
        return report
    }
}

/// Tells the handler why reports are not written, and when they are written again: the directory may be missing, full, read-only,
/// open to others or not responding, and work again later. Confined to the reporter's thread.
struct WritingFaults {
    /// The name of the directory, or of another sink.
    private let sink: String
    private let tell: @Sendable (StallEvent) -> Void
    /// The faults that were reported and are not over yet. Each is reported once, and its end once.
    private var reported: [StallMonitorError.Code: StallMonitorError] = [:]

    init(of sink: String, _ tell: @escaping @Sendable (StallEvent) -> Void) { (self.sink, self.tell) = (sink, tell) }

    /// Reports what has changed since the last status.
    ///
    /// - Parameter lost: How many reports of this run are lost.
    mutating func note(_ status: ReportWriter.Status, lost: Int64) {
        if status.hangs(at: .now) {
            notify(StallMonitorError(.reportDirectoryHangs, detail(of: status)))
        } else if status.busy == nil, status.lastStep < ReportWriter.writeTimeout {
            mended(.reportDirectoryHangs)
        }
        if let problem = status.problem {
            let detail = "\(sink): \(problem.writersDescription). \(detail(of: status))"
            notify(StallMonitorError(.reportNotWritten, errno: problem.errorNumber, detail))
        } else {
            mended(.reportNotWritten)
        }
        note(status.concerns, [.link, .openToOthers], as: .reportDirectoryExposed)
        note(status.concerns, [.filled], as: .reportDirectoryFilled)
        if lost > 0 { notify(StallMonitorError(.reportsLost, Self.losses(lost, status.problem))) }
    }

    /// Reports all losses of the run, even if some were reported before.
    func noteFinalLoss(of lost: Int64, _ status: ReportWriter.Status) {
        guard lost > 0 else { return }
        tell(.fault(StallMonitorError(.reportsLost, Self.losses(lost, status.problem))))
    }

    /// Reports a problem of the directory once, and its end once.
    private mutating func note(
        _ concerns: Set<ReportDirectory.Concern>,
        _ kinds: [ReportDirectory.Concern],
        as code: StallMonitorError.Code
    ) {
        let found = kinds.filter(concerns.contains)
        guard !found.isEmpty else { return mended(code) }
        notify(StallMonitorError(code, found.map { $0.advice(for: sink) }.joined(separator: " Also: ")))
    }

    mutating func notify(_ error: StallMonitorError) {
        guard reported[error.code] == nil else { return }
        reported[error.code] = error
        tell(.fault(error))
    }

    mutating func mended(_ code: StallMonitorError.Code) {
        if let error = reported.removeValue(forKey: code) { tell(.mended(error)) }
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
        let reason = problem?.writersDescription ?? "no time was left, the disk did not answer, or they were too large"
        return "\(count) \(count == 1 ? "report is" : "reports are") lost: \(reason)."
    }
}

extension ReportError {
    /// What to do about it in a process that writes reports: `description` advises who reads them.
    fileprivate var writersDescription: String {
        let problem: String
        switch code {
        case .missingDirectory where path?.isEmpty == true: problem = "the report directory's name is empty"
        case .missingDirectory, .notADirectory: problem = "the report directory cannot be made"
        case .permissionDenied: problem = "this process may not write there"
        default: return description
        }
        let reason = errorNumber.map { " (\(errorText($0)))" } ?? ""
        let variable = ReportDirectory.environmentVariable
        return "\(problem)\(reason); set $\(variable), or the configuration's directory, to one that can be written"
    }
}
