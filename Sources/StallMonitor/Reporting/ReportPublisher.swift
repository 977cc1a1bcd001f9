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
        faults = WritingFaults(of: writer.sinkName, FaultNotifier(tell))
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
        if !writer.status.hangs(at: .now), !isBehind || writer.status.isQuick {
            isBehind = !writer.wait(until: .now + ReportWriter.writeTimeout)
        }
        let status = writer.status
        // At the end the losses are reported once more, all together.
        faults.note(status, lost: isSettled ? 0 : lost(status))
    }

    private func lost(_ status: ReportWriter.Status) -> Int64 {
        Int64(status.unmade + status.lost + (isSettled ? status.waitingReports : 0))
    }

    /// Makes the number visible to other threads.
    private func noteUnmade() { writer.note(unmade: unencodable + abandoned.count) }
}
