import RunLoopKit
import StallReports
import Testing

@testable import StallMonitor

@Suite("The order of writing")
struct WriteQueueTests {
    private func time(_ seconds: Int) -> MonotonicInstant { .init(nanoseconds: UInt64(seconds + 1000) * 1_000_000_000) }

    private func report(_ number: UInt64, bytes: Int = 10, isFinal: Bool = true) -> PendingDocument {
        let name = ReportFileName(.stall, ULID(rawValue: UInt128(number)))
        return PendingDocument(name: name, bytes: Array(repeating: 0, count: bytes), isFinal: isFinal)
    }

    private var record: PendingDocument {
        PendingDocument(name: ReportFileName(.run, ULID(rawValue: 99)), bytes: [1], isFinal: false)
    }

    private let refused = ReportError(.io, errorNumber: 5)
    private let full = ReportError(.full, errorNumber: 28)

    /// A queue that expectations may change.
    private final class Queue {
        private var queue: WriteQueue
        init(limits: StallMonitor.MemoryLimits) { queue = WriteQueue(limits: limits) }
        var documents: PendingDocuments { queue.documents }
        var problem: ReportError? { queue.problem }
        func put(_ document: PendingDocument) { queue.put(document) }
        func prepare() { queue.prepare() }
        func prepared() { queue.prepared() }
        func prepareFailed(_ error: ReportError, at time: MonotonicInstant) { queue.prepareFailed(error, at: time) }
        func close() { queue.close() }
        func next(at time: MonotonicInstant) -> WriteQueue.Step { queue.next(at: time) }
        func document(at time: MonotonicInstant) -> PendingDocument? {
            if case .write(let document) = queue.next(at: time) { document } else { nil }
        }
        func wrote(_ document: PendingDocument) { queue.wrote(document) }
        func writeFailed(_ document: PendingDocument, _ error: ReportError, at time: MonotonicInstant) {
            queue.writeFailed(document, error, at: time)
        }
    }

    /// What the queue has written at `time`, until it waits or ends: the numbers of the reports, 99 for the run
    /// record.
    private func written(_ queue: Queue, at time: MonotonicInstant, error: ReportError? = nil) -> [Int] {
        var written: [Int] = []
        while true {
            switch queue.next(at: time) {
            case .write(let document):
                written.append(Int(document.name.id.rawValue))
                if let error { queue.writeFailed(document, error, at: time) } else { queue.wrote(document) }
            case .prepare: queue.prepared()
            case .wait, .end: return written
            }
        }
    }

    @Test("New items are written at once, the newest first, the run record last; then the queue waits indefinitely")
    func atOnce() {
        let queue = Queue(limits: .init())
        for number in 1...3 { queue.put(report(UInt64(number))) }
        queue.put(record)
        #expect(written(queue, at: time(0)) == [3, 2, 1, 99])
        #expect(queue.next(at: time(0)) == .wait(until: nil))
        #expect(queue.documents.isEmpty && queue.problem == nil)
    }

    @Test("A refused report is retried after 1, 2, 4 … 60 s only; a new one is tried when it arrives")
    func retries() {
        let queue = Queue(limits: .init())
        queue.put(report(1))
        var now = time(0)
        for distance in [1, 2, 4, 8, 16, 32, 60, 60] {
            #expect(written(queue, at: now, error: refused) == [1])
            #expect(queue.next(at: now) == .wait(until: now + .seconds(distance)))
            #expect(written(queue, at: now + .milliseconds(distance * 1000 - 1), error: refused).isEmpty)
            now = now + .seconds(distance)
        }
        queue.put(report(2))
        #expect(written(queue, at: now + .milliseconds(-1), error: refused) == [2])
        #expect(queue.problem == refused && queue.documents.waitingReports == 2)
    }

    @Test("After the first success the others follow, the directory is prepared, and the problem is over")
    func recovers() {
        let queue = Queue(limits: .init())
        for number in 1...3 { queue.put(report(UInt64(number))) }
        #expect(written(queue, at: time(0), error: refused) == [3])
        queue.put(report(4))
        // Before the next round.
        #expect(written(queue, at: time(0)) == [4, 3, 2, 1])
        #expect(queue.problem == nil && queue.documents.lost == 0 && queue.next(at: time(1)) == .wait(until: nil))
    }

    @Test("On a full disk each report is tried, because a smaller one may fit; the larger one still waits")
    func fullDisk() throws {
        let queue = Queue(limits: .init())
        for number in 1...3 { queue.put(report(UInt64(number))) }
        #expect(written(queue, at: time(0), error: full) == [3, 2, 1])
        queue.put(report(4))
        let small = try #require(queue.document(at: time(0)))
        queue.wrote(small)
        #expect(written(queue, at: time(0), error: full) == [3, 2, 1])
        #expect(queue.problem == full && queue.documents.waitingReports == 3)
        queue.put(report(5))
        let next = try #require(queue.document(at: time(0)))
        queue.wrote(next)
        #expect(written(queue, at: time(0)).isEmpty, "the others follow once a round")
    }

    @Test("A later version replaces the earlier one, even one that is being written")
    func versions() throws {
        let queue = Queue(limits: .init())
        queue.put(report(1, bytes: 10, isFinal: false))
        let first = try #require(queue.document(at: time(0)))
        queue.put(report(1, bytes: 20))
        queue.wrote(first)
        #expect(queue.documents.waitingBytes == 20)
        let second = try #require(queue.document(at: time(0)))
        #expect(second.bytes.count == 20)
        queue.wrote(second)
        #expect(queue.documents.isEmpty)
    }

    @Test("Above the limits the oldest finished report is lost; the newest and the run record stay")
    func bounds() {
        let queue = Queue(limits: .init(reports: 3, bytes: 100))
        queue.put(record)
        queue.put(report(1, isFinal: false))
        for number in 2...5 { queue.put(report(UInt64(number))) }
        #expect(queue.documents.lost == 2 && queue.documents.waitingReports == 3)
        #expect(written(queue, at: time(0), error: full) == [5, 4, 1, 99])
        queue.put(report(6, bytes: 500))
        #expect(queue.documents.waitingReports == 1 && queue.documents.lost == 5)
        // The end of the ongoing stall does arrive: it was not lost.
        queue.put(report(1))
        #expect(queue.documents.lost == 5, "6 goes, 1 is back")
        #expect(written(queue, at: time(9)) == [1, 99])
    }

    @Test("A report that no reader would open is lost alone and is no fault of the disk")
    func tooLarge() {
        let queue = Queue(limits: .init())
        queue.put(report(1))
        #expect(written(queue, at: time(0), error: ReportError(.tooLarge)) == [1])
        #expect(queue.documents.lost == 1 && queue.problem == nil && queue.next(at: time(0)) == .wait(until: nil))
    }

    @Test("A closed queue tries once more what waits, then ends")
    func closing() {
        let queue = Queue(limits: .init())
        queue.put(report(1))
        #expect(written(queue, at: time(0), error: refused) == [1])
        queue.close()
        #expect(written(queue, at: time(0), error: refused) == [1])
        #expect(queue.next(at: time(0)) == .end)
    }

    @Test("A directory that cannot be prepared is tried again with the next round")
    func preparation() {
        let queue = Queue(limits: .init())
        queue.prepare()
        #expect(queue.next(at: time(0)) == .prepare(closing: true))
        queue.prepareFailed(refused, at: time(0))
        #expect(queue.next(at: time(0)) == .wait(until: time(1)))
        #expect(queue.next(at: time(1)) == .prepare(closing: true))
        queue.prepared()
        #expect(queue.problem == nil && queue.next(at: time(1)) == .wait(until: nil))
    }
}
