import RunLoopKit
import StallDetection
import StallReports
import Synchronization
import Testing

@testable import StallMonitor

@Suite("What the reporter makes of the watchdog's notices", .timeLimit(.minutes(10)))
struct ReporterTests {
    private let stall: StallObservation = {
        let now = MonotonicInstant.now
        return StallObservation(
            number: 1,
            reportID: .make(),
            watch: WatchIdentity(number: 1, name: .init(type: .runLoop, label: "quiet"), since: now),
            loop: .loop(QuietLoop()),
            category: .blocked,
            rule: StallRule(),
            pulse: .init(rawValue: 1),
            span: .exact(from: now, to: now),
            detectedAt: now,
            threadID: nil,
            evidence: nil,
            stack: .raced,
            samples: [],
            busy: nil,
            site: nil
        )
    }()

    @Test("A report says that the process crashed, until the process has survived that")
    func survivedCrash() {
        let directory = TemporaryDirectory(inMemory: true)
        let parts = EngineParts(StallMonitor.Configuration(directory: directory.path))
        parts.notices.add(.began(stall))
        parts.notices.add(.crashing(1))
        // As for a thread whose counts cannot be read.
        parts.notices.add(.ended(1, stall.span, nil, .abandoned))
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
}
