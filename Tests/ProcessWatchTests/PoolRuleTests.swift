import RunLoopKit
import StackCapture
import StallDetection
import Testing

@testable import ProcessWatch

@Suite("The rule for a task pool")
struct PoolRuleTests {
    private static let start = MonotonicInstant(nanoseconds: 1_000_000_000)

    private static func time(_ milliseconds: Int) -> MonotonicInstant { start + .milliseconds(milliseconds) }

    private func rule(_ width: Int = 2) -> PoolRule {
        PoolRule(tick: .milliseconds(50), threshold: .milliseconds(250), width: width)
    }

    /// A worker at one job since that time. Nil: without a proof.
    private func worker(
        _ thread: Int32,
        since: Int?,
        notBefore earliest: Int = 0,
        number: Int = 1,
        _ shows: WorkerRule.Shown? = .job
    ) -> PoolRule.Worker {
        var job = WorkerRule.Job(number: number, earliest: Self.time(earliest))
        (job.since, job.shows) = (since.map(Self.time), shows)
        return .init(threadID: thread, job: job)
    }

    @Test(
        "Starved is: as many workers as the pool is wide, each at one job for the threshold; it began with the last of them"
    )
    func starved() throws {
        var rule = rule()
        let workers = [worker(1, since: 0), worker(2, since: 100, notBefore: 60)]
        #expect(rule.maturity(workers) == Self.time(350))
        #expect(rule.decide(workers, at: Self.time(340)) == [])
        guard case .began(let members, let times)? = rule.decide(workers, at: Self.time(350)).first else {
            Issue.record("not found")
            return
        }
        #expect(members.map(\.threadID) == [1, 2])
        #expect(times.began == Self.time(60)...Self.time(100))
        // The first that goes on ends it.
        let freed = [worker(1, since: 0), worker(2, since: 420, number: 2)]
        let end = Self.time(400)...Self.time(410)
        guard case .ended(let times)? = rule.decide(freed, at: Self.time(450), ends: [2: end]).first else {
            Issue.record("not ended")
            return
        }
        #expect(times.ended == end)
    }

    @Test(
        "A free worker, one that is at something else or one of which nothing is known keeps the pool going",
        arguments: [nil, WorkerRule.Shown.other, .job]
    )
    func free(_ shown: WorkerRule.Shown?) {
        var rule = rule()
        // The last one begins one job after the other.
        let other = shown == .job ? worker(2, since: 4_900, number: 9) : worker(2, since: 0, shown)
        for milliseconds in stride(from: 0, to: 5_000, by: 50) {
            #expect(rule.decide([worker(1, since: 0), other], at: Self.time(milliseconds)) == [])
        }
        #expect(rule.decide([worker(1, since: 0)], at: Self.time(5_000)) == [])
    }

    @Test("Stacks are asked for once two ticks have passed for as many workers as the pool is wide, each once")
    func unseen() {
        let rule = rule()
        let unseen = [worker(1, since: 0, nil), worker(2, since: 50, nil)]
        #expect(rule.unseen(unseen, at: Self.time(140), isKnown: true) == [])
        #expect(rule.unseen(unseen, at: Self.time(150), isKnown: true).map(\.threadID) == [1, 2])
        #expect(
            rule.unseen([unseen[0], worker(2, since: 50)], at: Self.time(150), isKnown: true).map(\.threadID) == [1]
        )
        #expect(rule.unseen([unseen[0], worker(2, since: 50, .other)], at: Self.time(150), isKnown: true) == [])
        #expect(rule.unseen([unseen[0]], at: Self.time(900), isKnown: true) == [])
    }

    @Test("Busy workers without a proof are said to be unproven, once")
    func unproven() {
        var rule = rule()
        let workers = [worker(1, since: nil), worker(2, since: nil)]
        #expect(rule.decide(workers, at: Self.time(200)) == [])
        #expect(rule.decide(workers, at: Self.time(250)) == [.unproven])
        #expect(rule.decide(workers, at: Self.time(900)) == [])
    }

    @Test("With more workers than the pool is wide, it is stalled until so many have gone on that one is free")
    func moreWorkers() {
        var rule = rule()
        let workers = [worker(1, since: 0), worker(2, since: 10), worker(3, since: 20)]
        #expect(rule.decide(workers, at: Self.time(300)).count == 1)
        let two = rule.decide(Array(workers.dropFirst()), at: Self.time(350))
        guard case .continues(let members, _, _)? = two.first else {
            Issue.record("\(two)")
            return
        }
        #expect(members.map(\.threadID) == [2, 3])
        guard case .ended? = rule.decide([workers[2]], at: Self.time(400)).first else {
            Issue.record("not ended")
            return
        }
    }

    @Test("Time that the watcher has missed before the end does not count, and is told apart from stops")
    func missed() throws {
        var rule = rule(1)
        var member = worker(1, since: 0)
        (member.job.stopped, member.job.unobserved) = (.milliseconds(20), .milliseconds(30))
        guard case .began(_, let times)? = rule.decide([member], at: Self.time(300)).first else {
            Issue.record("not found")
            return
        }
        #expect(times.excluded == .milliseconds(50) && times.unobserved == .milliseconds(30))
        // The look is due at 350, and comes at 1350. The worker went on at 600: 250 of the missed 1000 ms were before that.
        let end = Self.time(600)...Self.time(600)
        let orders = rule.decide([], at: Self.time(1_350), ends: [1: end], lateness: .milliseconds(1_000))
        guard case .ended(let times)? = orders.first else {
            Issue.record("not ended")
            return
        }
        #expect(times.excluded == .milliseconds(300) && times.unobserved == .milliseconds(280))
        #expect(times.length == .milliseconds(300))
    }

    @Test("A growing stall is worth telling at each doubling of its length")
    func growing() {
        var rule = rule(1)
        var told: [Int] = []
        for milliseconds in stride(from: 250, through: 2_100, by: 50) {
            for order in rule.decide([worker(1, since: 0)], at: Self.time(milliseconds)) {
                if case .continues(_, _, isWorthReporting: true) = order { told.append(milliseconds) }
            }
        }
        #expect(told == [500, 1_000, 2_000])
    }
}

@Suite("The code of a task pool")
struct PoolCodeTests {
    private let code = PoolCode(job: 100..<200, worker: 1_000..<1_100, item: 1_200..<1_300, dispatch: 1_000..<2_000)

    private func stack(_ addresses: UInt...) -> CapturedStack {
        let frames = addresses.enumerated().map { index, address in
            CapturedStack.Frame(address: address, found: index == 0 ? .register : .unwindTable)
        }
        let cost = CapturedStack.Cost(heldNanoseconds: 0, unwindNanoseconds: 0, bytesCopied: 0)
        return CapturedStack(frames: frames, method: .stopped, cost: cost)
    }

    @Test("A job is called by libdispatch alone, as an item of a concurrent queue, from the worker's own function")
    func job() {
        #expect(code.caller(ofJobIn: stack(5_000, 150, 1_500, 1_250, 1_050, 9_000)) == 2)
        // A job that runs another one: the outer one counts.
        #expect(code.caller(ofJobIn: stack(5_000, 150, 6_000, 160, 1_250, 1_050)) == 4)
        // A block that runs a job, an item of another kind of queue, no job, no worker.
        #expect(code.caller(ofJobIn: stack(5_000, 150, 6_000, 1_250, 1_050)) == nil)
        #expect(code.caller(ofJobIn: stack(5_000, 150, 1_500, 1_600, 1_050)) == nil)
        #expect(code.caller(ofJobIn: stack(5_000, 1_500, 1_250, 1_050)) == nil)
        #expect(code.caller(ofJobIn: stack(5_000, 150, 1_500, 1_250, 9_000)) == nil)
    }

    /// - Parameters:
    ///   - timeout: The address of its timeout; 0 for none.
    ///   - call: What it waits for when all the arguments are read; nil if it does not wait any more.
    private func rests(_ number: Int, at address: UInt, timeout: UInt = 7_000, then call: UInt?) -> Bool {
        let place = WaitPlace(call: number, argument: UInt64(address), stackPointer: 0, programCounter: 0)
        return code.isRest(.calling(place)) {
            call.map { SystemCall(number: number, arguments: [$0, 0x189, 0, timeout, 0, 0xffff_ffff]) }
        }
    }

    private func futex() throws -> Int {
        try #require((0..<600).first { SystemCall(number: $0, arguments: []).name == "futex" })
    }

    @Test("A worker rests at the pool's own semaphore; a job that waits for another one does not")
    func rest() throws {
        let futex = try futex()
        #expect(rests(futex, at: 1_900, then: 1_900))
        #expect(!rests(futex, at: 2_500, then: 2_500) && !rests(futex + 1, at: 1_900, then: 1_900))
        #expect(!code.isRest(.running) { nil })
        // It has gone on meanwhile.
        #expect(!rests(futex, at: 1_900, then: nil) && !rests(futex, at: 1_900, then: 1_800))
    }

    @Test("A job that waits without a timeout, as for a global lock of a static program, does not rest")
    func globalLock() throws {
        #expect(try !rests(futex(), at: 1_900, timeout: 0, then: 1_900))
    }

    @Test("Workers are known by their queues' names; those of serial queues and other threads are none")
    func names() {
        #expect(PoolPriority(ofThreadNamed: "oot.default-qos")?.label == "medium-priority tasks")
        #expect(
            PoolPriority(ofThreadNamed: "-qos.overcommit") == nil && PoolPriority(ofThreadNamed: "NIO-ELT-0-#1") == nil
        )
    }
}
