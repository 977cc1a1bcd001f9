import RunLoopKit
import StackCapture
import StallDetection
import StallReports
import Synchronization
import Testing

@testable import StallMonitor

@Suite("When a stall ends the process")
struct LastResortTests {
    private let start = MonotonicInstant.now
    private var resort = LastResort(limit: .seconds(30), abortPatience: .seconds(60))

    private func notice() -> AbortNotice { AbortNotice(limit: .seconds(30), threads: nil, takenAt: start) }

    @Test("not before the stall has lasted as long as the server allows, judged by its own share alone")
    func limit() {
        #expect(resort.step(for: 1, lasting: .seconds(40)) { .seconds(29) } == .wait)
        #expect(resort.step(for: 1, lasting: .seconds(30)) { .seconds(30) } == .announce)
    }

    @Test("once the report is written, or five seconds later if the disk does not answer")
    mutating func report() {
        let notice = notice()
        resort.announce(notice, of: 1, lasting: .seconds(31))
        let soon = Duration.milliseconds(35_999)
        #expect(resort.step(for: 1, lasting: soon) { .seconds(31) } == .wait)
        #expect(resort.step(for: 1, lasting: .seconds(36)) { .seconds(31) } == .abort)
        notice.noteWritten()
        #expect(resort.step(for: 1, lasting: soon) { .seconds(31) } == .abort)
    }

    @Test("a stop of the process while the report is written is not time in which the disk does not answer")
    func stop() async {
        // In a process of its own, which would be ended otherwise.
        await #expect(processExitsWith: .success) {
            var test = RoundUnderTest()
            let loop = QuietLoop()
            #expect(test.announceAbort(of: loop) == 1)
            // Nothing looks meanwhile, as if the process was stopped.
            _ = stallInSleep(6_000)
            test.round.look()
            loop.rest()
            test.round.look()
            test.round.finish()
        }
    }

    @Test("the time in which the other threads' stacks are waited for before that is no stop of the process")
    func capture() throws {
        let isOver = Atomic(false)
        // It takes no signal, and there is no stack of a thread that computes without it.
        let computing = try MonitorThread(name: "computing") { while !isOver.load(ordering: .relaxed) {} }
        let source = StackSource(signal: 52) { _ in }
        var test = RoundUnderTest(source)
        let loop = QuietLoop()
        test.round.services.lastResort = LastResort(limit: .milliseconds(20), abortPatience: .seconds(60))
        test.watch(loop, rule: StallRule(tick: .milliseconds(2), ticks: 3))
        loop.leaveRest()
        var notice: AbortNotice?
        // This time limit only ends a hang.
        let deadline = MonotonicInstant.now + .seconds(30)
        while notice == nil, MonotonicInstant.now < deadline {
            test.round.look()
            for case .aborting(_, let announced) in test.takeNotices() { notice = announced }
        }
        isOver.store(true, ordering: .relaxed)
        #expect(computing.join(by: .now + .seconds(60)))
        let threads = try #require(notice?.threads)
        #expect(threads.duration >= .milliseconds(900) && !threads.missing.isEmpty)
        let pauses = test.ledger.snapshot.pauses
        #expect((pauses.totals[.stopped]?.durationNs ?? 0) < 500_000_000, "\(pauses)")
        loop.rest()
        test.round.look()
        test.round.finish()
        source.invalidate()
    }

    @Test("a stall that has ended before its report was written is forgotten with the next one")
    mutating func forgotten() {
        weak var first: AbortNotice?
        do {
            let notice = notice()
            resort.announce(notice, of: 1, lasting: .seconds(30))
            first = notice
        }
        let wasKept = first != nil
        let next = AbortNotice(limit: .seconds(30), threads: nil, takenAt: start + .seconds(6))
        resort.announce(next, of: 2, lasting: .seconds(30))
        let isKept = first != nil
        #expect(wasKept && !isKept)
    }

    @Test("it does so also if the kernel's account of the thread cannot be read")
    func withoutEvidence() {
        var test = RoundUnderTest()
        let loop = QuietLoop()
        #expect(test.announceAbort(of: loop) == 1)
        loop.rest()
        test.round.look()
        test.round.finish()
    }

    @Test("a stall that was announced and then ended does not make another stall the last one")
    mutating func another() {
        let notice = notice()
        resort.announce(notice, of: 1, lasting: .seconds(30))
        notice.noteWritten()
        #expect(resort.step(for: 2, lasting: .seconds(39)) { .seconds(1) } == .wait)
        #expect(resort.step(for: 2, lasting: .seconds(39)) { .seconds(30) } == .announce)
    }
}

extension RoundUnderTest {
    /// Lets a loop stand still until its stall is announced as the last one.
    ///
    /// - Returns: How often it was announced: 0 if it was not within half a minute, which only ends a hang.
    fileprivate mutating func announceAbort(of loop: QuietLoop) -> Int {
        round.services.lastResort = LastResort(limit: .milliseconds(20), abortPatience: .seconds(60))
        watch(loop, rule: StallRule(tick: .milliseconds(2), ticks: 3))
        loop.leaveRest()
        var announced = 0
        let deadline = MonotonicInstant.now + .seconds(30)
        while announced == 0, MonotonicInstant.now < deadline {
            round.look()
            for case .aborting in takeNotices() { announced += 1 }
        }
        return announced
    }
}
