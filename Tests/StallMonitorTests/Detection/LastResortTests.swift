import RunLoopKit
import StackCapture
import StallDetection
import StallReports
import Synchronization
import TestSupport
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
            // So that the test's output says why it ended otherwise.
            useStandardErrorOfParent()
            var test = RoundUnderTest()
            let loop = QuietLoop()
            #expect(test.announceAbort(of: loop).count == 1)
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

    @Test("it is announced once, also if another one is announced long after: a stopped process writes no report")
    mutating func once() {
        resort.announce(notice(), of: 1, lasting: .seconds(30))
        let later = AbortNotice(limit: .seconds(30), threads: nil, takenAt: start + .seconds(60))
        resort.announce(later, of: 2, lasting: .seconds(30))
        #expect(resort.step(for: 1, lasting: .seconds(31)) { .seconds(31) } == .wait)
    }

    @Test("a stall that ends before its report was written is forgotten")
    func forgotten() {
        var test = RoundUnderTest()
        let loop = QuietLoop()
        weak let notice = test.announceAbort(of: loop).first
        let wasKept = notice != nil
        loop.rest()
        test.round.look()
        _ = test.takeNotices()
        #expect(wasKept && notice == nil)
        test.round.finish()
    }

    @Test("it does so also if the kernel's account of the thread cannot be read")
    func withoutEvidence() {
        var test = RoundUnderTest()
        let loop = QuietLoop()
        #expect(test.announceAbort(of: loop).count == 1)
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
    /// - Returns: What announced it: nothing if it was not within half a minute, which only ends a hang.
    fileprivate mutating func announceAbort(of loop: QuietLoop) -> [AbortNotice] {
        round.services.lastResort = LastResort(limit: .milliseconds(20), abortPatience: .seconds(60))
        watch(loop, rule: StallRule(tick: .milliseconds(2), ticks: 3))
        loop.leaveRest()
        var announced: [AbortNotice] = []
        let deadline = MonotonicInstant.now + .seconds(30)
        while announced.isEmpty, MonotonicInstant.now < deadline {
            round.look()
            for case .aborting(_, let notice) in takeNotices() { announced.append(notice) }
        }
        return announced
    }
}
