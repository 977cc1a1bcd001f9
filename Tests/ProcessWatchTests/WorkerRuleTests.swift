import RunLoopKit
import Testing

@testable import ProcessWatch

@Suite("The rule for a worker of a task pool")
struct WorkerRuleTests {
    private static let start = MonotonicInstant(nanoseconds: 1_000_000_000)

    private static func time(_ milliseconds: Int) -> MonotonicInstant { start + .milliseconds(milliseconds) }

    private static func calling(_ argument: UInt64) -> ThreadPosition {
        .calling(.init(call: 202, argument: argument, stackPointer: 0x100, programCounter: 0x200))
    }

    /// A worker that is looked at, and whose breakpoint can be set or not.
    private struct Story {
        var rule = WorkerRule(freeAt: WorkerRuleTests.time(0))
        var canArm = true
        var orders: [WorkerRule.Order?] = []

        /// - Parameter ran: how long the thread has run so far.
        mutating func look(
            at milliseconds: Int,
            ran: UInt64,
            _ position: ThreadPosition = .running,
            rests: Bool = false,
            isStopped: Bool = false,
            began: Int? = nil
        ) {
            let time = WorkerRuleTests.time(milliseconds)
            let order = rule.look(
                .init(
                    time: time,
                    schedule: Schedule(ran: ran, waited: 0, slices: 0),
                    position: position,
                    rests: rests,
                    isStopped: isStopped,
                    began: began.map(WorkerRuleTests.time)
                )
            )
            orders.append(order)
            if order == .arm { rule.armed(canArm, at: time) }
        }

        func length(_ milliseconds: Int) -> Duration? {
            rule.job?.length(at: WorkerRuleTests.time(milliseconds))
        }
    }

    @Test("While no other job begins, the worker is at the same one since the breakpoint was set")
    func oneJob() {
        var story = Story()
        story.look(at: 50, ran: 0, Self.calling(1), rests: true)
        story.look(at: 100, ran: 10)
        for milliseconds in [150, 200, 250] { story.look(at: milliseconds, ran: UInt64(milliseconds)) }
        #expect(story.length(300) == .milliseconds(200))
        #expect(story.rule.job?.earliest == Self.time(50))
        #expect(story.orders == [nil, .arm, nil, nil, nil])
    }

    @Test("Another job begins at its hit, at the earliest, and is proven from when the breakpoint is set again")
    func nextJob() {
        var story = Story()
        story.look(at: 50, ran: 1)
        let first = story.rule.job?.number
        story.look(at: 100, ran: 2, began: 70)
        #expect(story.rule.job?.number != first)
        #expect(story.rule.job?.earliest == Self.time(70) && story.rule.job?.since == Self.time(100))
        #expect(story.orders == [.arm, .arm])
    }

    @Test("A worker that waits for its next job is at none")
    func rest() {
        var story = Story()
        story.look(at: 50, ran: 1)
        story.look(at: 100, ran: 2, Self.calling(1), rests: true)
        #expect(story.rule.job == nil && story.orders == [.arm, .release])
        #expect(!story.rule.needsPosition(Schedule(ran: 2, waited: 0, slices: 0)))
        #expect(story.rule.needsPosition(Schedule(ran: 3, waited: 0, slices: 0)))
    }

    @Test("Without a breakpoint only one call proves it, from when it was first seen; after it nothing is proven")
    func withoutBreakpoints() {
        var story = Story(canArm: false)
        story.look(at: 50, ran: 1)
        story.look(at: 100, ran: 2)
        #expect(story.rule.job != nil && story.rule.job?.since == nil)
        for milliseconds in [150, 200, 250] { story.look(at: milliseconds, ran: 3, Self.calling(7)) }
        #expect(story.rule.job?.since == Self.time(150) && story.length(250) == .milliseconds(100))
        story.rule.saw(.job)
        let number = story.rule.job?.number
        story.look(at: 300, ran: 4, Self.calling(7))
        // The same call again, but the thread has run in between: it may have been at another job.
        #expect(story.rule.job?.since == nil && story.rule.job?.shows == nil && story.rule.job?.number != number)
    }

    @Test("Without a breakpoint, a stack from before a call does not show the job that makes the call")
    func earlierStack() {
        var story = Story(canArm: false)
        story.look(at: 50, ran: 1)
        story.rule.saw(.job)
        for milliseconds in [100, 150] { story.look(at: milliseconds, ran: 2, Self.calling(7)) }
        #expect(story.rule.job?.since == Self.time(100) && story.rule.job?.shows == nil)
    }

    @Test("A breakpoint that could be set later proves nothing about the time before")
    func lateBreakpoint() {
        var story = Story(canArm: false)
        for milliseconds in [50, 100, 150] { story.look(at: milliseconds, ran: 3, Self.calling(7)) }
        #expect(story.rule.job?.since == Self.time(50))
        story.canArm = true
        story.look(at: 200, ran: 3, Self.calling(7))
        #expect(story.rule.job?.since == Self.time(200))
    }

    @Test("Time in which the thread is stopped, or the watcher was late, does not count")
    func excluded() {
        var story = Story()
        story.look(at: 50, ran: 1)
        story.look(at: 100, ran: 1, .halted(stackPointer: 1, programCounter: 2), isStopped: true)
        story.look(at: 150, ran: 1, .halted(stackPointer: 1, programCounter: 2), isStopped: true)
        story.rule.exclude(.milliseconds(30))
        story.look(at: 200, ran: 2)
        #expect(story.length(250) == .milliseconds(70))
        #expect(story.rule.job?.stopped == .milliseconds(100) && story.rule.job?.unobserved == .milliseconds(30))
        // Both at once: each moment is excluded once.
        story.rule.exclude(.milliseconds(40))
        story.look(at: 300, ran: 2, .halted(stackPointer: 1, programCounter: 2), isStopped: true)
        #expect(story.rule.job?.stopped == .milliseconds(160) && story.rule.job?.unobserved == .milliseconds(70))
    }
}
