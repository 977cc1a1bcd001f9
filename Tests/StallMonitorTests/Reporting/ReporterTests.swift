import RunLoopKit
import StallDetection
import StallDiagnosis
import StallReports
import Synchronization
import Testing

@testable import StallMonitor

@Suite("What the reporter makes of the watchdog's notices", .timeLimit(.minutes(10)))
struct ReporterTests {
    private let start = MonotonicInstant.now

    private func span(_ length: Duration) -> StallSpan { .exact(from: start, to: start + length) }

    /// A stall of a second, without a stack: all of these are one fault.
    private func stall(_ number: Int = 1) -> StallObservation { QuietLoop().stall(number, span: span(.seconds(1))) }

    @Test("A report says that the process crashed, until the process has survived that")
    func survivedCrash() {
        let directory = TemporaryDirectory(inMemory: true)
        let parts = EngineParts(StallMonitor.Configuration(directory: directory.path))
        parts.notices.add(.began(stall()))
        parts.notices.add(.crashing(1))
        // As for a thread whose counts cannot be read.
        parts.notices.add(.ended(1, span(.seconds(1)), nil, .abandoned))
        parts.notices.close()
        let crashes = Mutex<[Bool]>([])
        Reporter(parts) { event in
            switch event {
            case .began(let report), .grew(let report), .ended(let report):
                crashes.withLock { $0.append(report.cause.summary.contains("the process crashed")) }
            default: break
            }
        }.run()
        #expect(crashes.withLock { $0 } == [false, true, false])
        #expect(parts.writer.join(by: .now + .seconds(60)))
    }

    @Test("The handler's processor time is no cost of a report that begins only when its stall ends")
    func handlersTime() {
        let directory = TemporaryDirectory(inMemory: true)
        let parts = EngineParts(StallMonitor.Configuration(directory: directory.path))
        for (number, last) in [(1, Duration.seconds(1)), (2, Duration.seconds(3))] {
            parts.notices.add(.began(stall(number)))
            parts.notices.add(.ended(number, span(last), nil, .recovered))
        }
        parts.notices.close()
        let costs = Mutex<[Int64]>([])
        Reporter(parts) { event in
            switch event {
            case .began:
                let begin = ThreadClock.nanoseconds
                while ThreadClock.nanoseconds - begin < 1_000_000_000 {}
            case .ended(let report): costs.withLock { $0.append(report.monitor.reporterCPUNs ?? 0) }
            default: break
            }
        }.run()
        let ended = costs.withLock { $0 }
        #expect(ended.count == 2 && ended.allSatisfy { $0 < 1_000_000_000 })
        #expect(parts.writer.join(by: .now + .seconds(60)))
    }
}
