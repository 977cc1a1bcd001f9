import RunLoopKit
import StallDetection
import Testing

@testable import StallMonitor

@Suite("When a stall ends the process")
struct LastResortTests {
    private let start = MonotonicInstant.now
    private var resort = LastResort(limit: .seconds(30), abortPatience: .seconds(60))

    private func notice() -> AbortNotice { AbortNotice(limit: .seconds(30), threads: nil, takenAt: start) }

    @Test("not before the stall has lasted as long as the server allows, judged by its length alone")
    func limit() {
        #expect(resort.step(for: 1, at: start + .seconds(40)) { .seconds(29) } == .wait)
        #expect(resort.step(for: 1, at: start) { .seconds(30) } == .announce)
    }

    @Test("once the report is written, or five seconds later if the disk does not answer")
    mutating func report() {
        let notice = notice()
        resort.announce(notice, of: 1)
        let soon = start + .milliseconds(4999)
        #expect(resort.step(for: 1, at: soon) { .seconds(31) } == .wait)
        #expect(resort.step(for: 1, at: start + .seconds(5)) { .seconds(31) } == .abort)
        notice.noteWritten()
        #expect(resort.step(for: 1, at: soon) { .seconds(31) } == .abort)
    }

    @Test("a stall that has ended before its report was written is forgotten with the next one")
    mutating func forgotten() {
        weak var first: AbortNotice?
        do {
            let notice = notice()
            resort.announce(notice, of: 1)
            first = notice
        }
        let wasKept = first != nil
        let next = AbortNotice(limit: .seconds(30), threads: nil, takenAt: start + .seconds(6))
        resort.announce(next, of: 2)
        let isKept = first != nil
        #expect(wasKept && !isKept)
    }

    @Test("it does so also if the kernel's account of the thread cannot be read")
    func withoutEvidence() {
        var test = RoundUnderTest()
        let loop = QuietLoop()
        test.round.services.lastResort = LastResort(limit: .milliseconds(20), abortPatience: .seconds(60))
        test.watch(loop, rule: StallRule(tick: .milliseconds(2), ticks: 3))
        loop.leaveRest()
        var announced = 0
        // This time limit only ends a hang.
        let deadline = MonotonicInstant.now + .seconds(30)
        while announced == 0, MonotonicInstant.now < deadline {
            test.round.look()
            for case .aborting in test.takeNotices() { announced += 1 }
        }
        #expect(announced == 1)
        loop.rest()
        test.round.look()
        test.round.finish()
    }

    @Test("a stall that was announced and then ended does not make another stall the last one")
    mutating func another() {
        let notice = notice()
        resort.announce(notice, of: 1)
        notice.noteWritten()
        #expect(resort.step(for: 2, at: start + .seconds(9)) { .seconds(1) } == .wait)
        #expect(resort.step(for: 2, at: start + .seconds(9)) { .seconds(30) } == .announce)
    }
}
