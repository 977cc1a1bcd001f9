import Dispatch
import Glibc
import RunLoopKit
import StallReading
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallMonitor

@Suite(
    "Slowness that the server has announced",
    .serialized,
    .captureSignal,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct SlownessTests {
    private let directory = TemporaryDirectory(inMemory: true)
    private let log = EventLog()
    private let worker = StallingLoop()

    private func start(_ change: (inout StallMonitor.Configuration) -> Void = { _ in }) -> StallMonitor {
        var configuration = StallMonitor.Configuration(directory: directory.path + "/reports", repeats: .everyStall)
        change(&configuration)
        return StallMonitor.start(configuration, watching: [worker.loop], onEvent: log.handler)
    }

    /// Stops the monitor and returns what it has written.
    private func end(_ monitor: StallMonitor) throws -> (run: RunRecord, reports: [StallReport]) {
        monitor.stop()
        worker.end()
        let contents = try ReportReader(path: directory.path + "/reports").contents()
        return (try #require(contents.runs.first), contents.reports.filter { $0.cause.verdict != .starved })
    }

    @Test("Work in a scope is no stall; it is summed, and the candidate that it explains is counted")
    func scope() throws {
        let monitor = start()
        let watch = try #require(monitor.watch(of: worker.loop))
        worker.perform { watch.expectSlow(for: .seconds(30)) { _ = stallInSleep(600) } }
        worker.perform {}
        let (run, reports) = try end(monitor)
        #expect(reports.isEmpty)
        #expect(run.dismissed?["expected_slow"] == 1, "\(run)")
        let total = run.pauseLog?.totals["expected_slow"]
        #expect(total?.count == 1 && (total?.durationNs ?? 0) >= 600_000_000)
        #expect(run.pauses == 0)
    }

    @Test("A stall that lasts longer than its scope's limit is reported, without the covered time")
    func limit() throws {
        let monitor = start()
        worker.perform { monitor.expectSlow(for: .milliseconds(400)) { _ = stallInSleep(1_000) } }
        #expect(log.wait { !$0.ended.isEmpty })
        let report = try #require(try end(monitor).reports.first)
        #expect((report.excludedNs ?? 0) >= 400_000_000, "\(report)")
        #expect(report.durationNs >= 500_000_000)
        #expect(report.durationMaxNs == report.durationNs + (report.excludedNs ?? 0))
    }

    @Test("A stall after a scope, in the same callout, is not blamed on what the scope covers")
    func blame() throws {
        let monitor = start { $0.ownCode = OwnCode(modules: ["StallMonitorTests"]) }
        worker.perform {
            monitor.expectSlow(for: .seconds(60)) { _ = stallByComputing(1_500) }
            _ = stallInSleep(800)
        }
        #expect(log.wait { !$0.ended.isEmpty })
        let report = try #require(try end(monitor).reports.first)
        #expect(report.culprit?.function?.contains("stallInSleep") == true, "\(report)")
        #expect(report.cause.verdict == .blocked, "\(report)")
    }

    @Test("The counts of a turn of short callouts are not those of a scope in the same turn")
    func countsOfTurn() throws {
        let monitor = start()
        let mayGoOn = DispatchSemaphore(value: 0)
        worker.loop.perform { mayGoOn.wait() }
        // They are added while the loop is busy, so it runs them in one turn.
        worker.loop.perform { monitor.expectSlow(for: .seconds(60)) { _ = stallByComputing(1_500) } }
        for _ in 0..<200 { worker.loop.perform { _ = stallInSleep(4) } }
        mayGoOn.signal()
        #expect(log.wait { $0.ended.contains { $0.kind == .congested } })
        monitor.stop()
        worker.end()
        let report = try #require(log.ended.first { $0.kind == .congested })
        let counted = try #require(report.cause.evidence?.windowNs)
        // The last look comes up to a tick after the end, and may be late. The scope would add a second and a half.
        #expect(counted > 0 && counted <= report.durationNs + 500_000_000, "\(report)")
    }

    @Test("The length of an ongoing stall in the health does not include the time that a scope covers")
    func health() throws {
        let monitor = start()
        let watch = try #require(monitor.watch(of: worker.loop))
        let isLeftOut = Atomic(false)
        worker.perform {
            let beginning = MonotonicInstant.now
            // This time limit only ends a hang.
            let deadline = beginning + .seconds(60)
            while monitor.health.stalls.isEmpty, .now < deadline { _ = stallInSleep(20) }
            watch.expectSlow(for: .seconds(60)) {
                while !isLeftOut.load(ordering: .relaxed), .now < deadline {
                    _ = stallInSleep(20)
                    guard let lasting = monitor.health.stalls.first?.lasting else { continue }
                    let leftOut = MonotonicInstant.now - beginning - lasting
                    isLeftOut.store(leftOut > .milliseconds(500), ordering: .relaxed)
                }
            }
        }
        let wasLeftOut = isLeftOut.load(ordering: .relaxed)
        #expect(wasLeftOut)
        _ = try end(monitor)
    }

    @Test("One loop's scope does not cover another loop")
    func otherLoop() throws {
        let monitor = start()
        let other = StallingLoop()
        let watch = try monitor.watch(other.loop, label: "other")
        watch.expectSlow(for: .seconds(30)) {
            let done = DispatchSemaphore(value: 0)
            other.loop.perform {
                _ = stallInSleep(500)
                done.signal()
            }
            worker.perform { _ = stallInSleep(500) }
            done.wait()
        }
        #expect(log.wait { !$0.ended.isEmpty })
        let reports = try end(monitor).reports
        other.end()
        #expect(reports.map(\.watched.label) == [worker.loop.label])
    }

    @Test("A scope of a pool's watch also covers its long jobs; the watch that the pool is found by has them, too")
    func longJob() throws {
        let monitor = start { $0.reportsJobsLongerThan = .milliseconds(250) }
        let pool = TaskPoolHeartbeat(label: "workers", width: 2)
        let watch = try monitor.watch(pool)
        #expect(watch.jobs != nil && monitor.watch(of: pool)?.jobs == watch.jobs)
        pool.run { watch.expectSlow(for: .seconds(30)) { _ = stallInSleep(600) } }
        let (run, reports) = try end(monitor)
        #expect(reports.isEmpty, "\(reports)")
        #expect(run.pauseLog?.totals["expected_slow"]?.count == 1)
        watch.cancel()
        #expect(monitor.watch(of: pool) == nil)
    }

    @Test("A scope passes on the work's result or error, also of asynchronous work")
    func results() async throws {
        struct Failure: Error, Equatable {}
        let monitor = start()
        let watch = try #require(monitor.watch(of: worker.loop))
        #expect(monitor.expectSlow(for: .seconds(1)) { 1 } == 1)
        #expect(throws: Failure()) { try watch.expectSlow(for: .seconds(1)) { throw Failure() } }
        let two = await monitor.expectSlow(for: .seconds(1)) {
            await Task.yield()
            return 2
        }
        #expect(two == 2)
        await #expect(throws: Failure()) {
            try await watch.expectSlow(for: .seconds(1)) {
                await Task.yield()
                throw Failure()
            }
        }
        let run = try end(monitor).run
        #expect(run.pauseLog?.totals["expected_slow"]?.count == 4)
    }

    @Test("During the start-up grace nothing is a stall; afterwards stalls are found as usual")
    func startupGrace() throws {
        let monitor = start { $0.startupGrace = .milliseconds(700) }
        worker.perform { _ = stallInSleep(500) }
        worker.perform { _ = stallInSleep(700) }
        #expect(log.wait { !$0.ended.isEmpty })
        let (run, reports) = try end(monitor)
        #expect(reports.count == 1)
        #expect(run.dismissed?["startup"] == 1, "\(run)")
        #expect(run.pauseLog?.totals["startup"] == .init(count: 1, durationNs: 700_000_000))
    }

    @Test(
        "While monitoring is paused nothing is looked at or reported; the pause does not count as watched time"
    )
    func pauseAll() throws {
        let monitor = start()
        worker.perform {}
        monitor.pause()
        monitor.pause()
        worker.perform { _ = stallInSleep(600) }
        #expect(monitor.isRunning)
        monitor.resume()
        worker.perform { _ = stallInSleep(400) }
        #expect(log.wait { !$0.ended.isEmpty })
        let (run, reports) = try end(monitor)
        #expect(reports.count == 1 && (reports.first?.durationNs ?? .max) < 600_000_000)
        let pause = try #require(run.pauseLog?.latest.first)
        #expect(run.pauseLog?.latest.count == 1 && run.pauses == 1)
        #expect(pause.kind == .monitoringPaused && pause.watch == nil && pause.durationNs >= 600_000_000)
        let life = run.updatedAt.nanoseconds(since: run.startedAt)
        #expect(run.watched[0].watchedNs <= life - 600_000_000)
    }

    @Test("While everything is paused the watchdog does not wake, although a loop works")
    func pauseCostsNothing() throws {
        let monitor = start()
        monitor.pause()
        for _ in 0..<10 { worker.perform { _ = stallInSleep(100) } }
        // At most those that were under way when the pause came, not one every 50 ms.
        #expect(try end(monitor).run.ticks <= 4)
    }

    @Test("A pause during a stall abandons its report; the stall is reported again after the resumption")
    func pauseInStall() throws {
        let monitor = start()
        let watch = try #require(monitor.watch(of: worker.loop))
        let mayGoOn = DispatchSemaphore(value: 0)
        worker.loop.perform { mayGoOn.wait() }
        #expect(log.wait { !$0.began.isEmpty })
        watch.pause()
        #expect(log.wait { !$0.ended.isEmpty })
        watch.resume()
        #expect(log.wait { $0.began.count == 2 })
        mayGoOn.signal()
        #expect(log.wait { $0.ended.count == 2 })
        let (run, reports) = try end(monitor)
        #expect(reports.map(\.state) == [.abandoned, .recovered])
        #expect(run.pauseLog?.latest.map(\.watch) == [worker.loop.label])
    }

    @Test("A loop whose watch is paused is not looked at, and others are")
    func pauseOne() throws {
        let monitor = start()
        let other = StallingLoop()
        let watch = try monitor.watch(other.loop, label: "other")
        watch.pause()
        other.perform { _ = stallInSleep(400) }
        worker.perform { _ = stallInSleep(400) }
        #expect(log.wait { !$0.ended.isEmpty })
        // The pause lasts until the end.
        let (run, reports) = try end(monitor)
        other.end()
        #expect(reports.map(\.watched.label) == [worker.loop.label])
        #expect(run.pauseLog?.latest.map(\.watch) == ["other"])
    }

    @Test("A nested run that rests is no stall of the outer loop; one that works is")
    func nestedRun() throws {
        let monitor = start()
        let loop = worker.loop
        worker.perform { loop.run(for: .milliseconds(700)) }
        #expect(log.began.isEmpty)
        worker.perform {
            loop.perform { _ = stallInSleep(400) }
            loop.run(for: .milliseconds(500))
        }
        #expect(log.wait { !$0.ended.isEmpty })
        worker.perform {
            loop.run(for: .milliseconds(50))
            _ = stallInSleep(400)
        }
        #expect(log.wait { $0.ended.count == 2 })
        #expect(try end(monitor).reports.count == 2)
    }

    @Test(
        "A loop that ends during a stall closes it; one that ends at rest leaves only its watched time"
    )
    func endedLoop() throws {
        let monitor = start()
        let brief = StallingLoop()
        try monitor.watch(brief.loop, label: "brief")
        brief.perform {}
        brief.end()
        let short = StallingLoop()
        try monitor.watch(short.loop, label: "short")
        short.loop.perform {
            short.end()
            _ = stallInSleep(500)
        }
        #expect(log.wait { !$0.ended.isEmpty })
        let (run, reports) = try end(monitor)
        #expect(reports.map(\.watched.label) == ["short"] && reports.map(\.state) == [.recovered])
        #expect(Set(run.watched.map(\.label)) == [worker.loop.label, "brief", "short"])
    }

    @Test("A thread found in its loop's own wait is not stalled, although the loop has not published the wait")
    func ownWait() throws {
        let foreign = ForeignLoop(saysWhatItWaitsOn: true)
        let silent = ForeignLoop(saysWhatItWaitsOn: false)
        let monitor = start()
        try monitor.watch(foreign)
        try monitor.watch(silent, label: "silent")
        // The loop that does not say what it waits on looks stalled: as much time has passed for the other one.
        #expect(log.wait { $0.began.contains { $0.watched.label == "silent" } })
        [foreign, silent].forEach { $0.end() }
        #expect(log.wait { !$0.ended.isEmpty })
        let (run, reports) = try end(monitor)
        #expect(reports.map(\.watched.label) == ["silent"], "\(reports)")
        #expect(run.raced >= 1 && run.dismissed?["in_wait"] == 1, "\(run)")
    }

    @Test("A loop in its own wait is not reported if it moves on just when it is looked at again")
    func movesOnUnseen() throws {
        let foreign = ForeignLoop(saysWhatItWaitsOn: true, movesOn: .milliseconds(240))
        let monitor = start()
        try monitor.watch(foreign)
        #expect(foreign.hasMovedOn.wait(timeout: .now() + .seconds(60)) == .success)
        foreign.end()
        let (run, reports) = try end(monitor)
        #expect(reports.isEmpty, "\(reports)")
        #expect(run.dismissed?["in_wait"] == 1, "\(run)")
    }

    @Test("A thread that has closed its loop's epoll set is not stalled, also if another loop has got the set's number")
    func closedSet() throws {
        let (left, busy) = (LeftLoop(label: "left", isOpen: false), LeftLoop(label: "busy", isOpen: true))
        let robbed = LeftLoop(label: "robbed", isOpen: true, hasLostItsSet: true)
        let monitor = start()
        try monitor.watch(left)
        try monitor.watch(robbed)
        try monitor.watch(busy)
        // As much time has passed for the others.
        #expect(log.wait { $0.began.contains { $0.watched.label == "busy" } })
        for loop in [left, robbed, busy] {
            loop.heartbeat.publish(.idle)
            loop.heartbeat.end()
        }
        #expect(log.wait { !$0.ended.isEmpty })
        let (run, reports) = try end(monitor)
        #expect(reports.map(\.watched.label) == ["busy"], "\(reports)")
        #expect(run.dismissed?["in_wait"] == 2, "\(run)")
    }

    @Test("A switched-off monitor runs the work of a scope and has nothing to pause")
    func switchedOff() {
        let monitor = start { $0.enabled = false }
        #expect(monitor.expectSlow(for: .seconds(1)) { 3 } == 3)
        monitor.pause()
        monitor.resume()
        #expect(monitor.disarmed == nil && monitor.watch(of: worker.loop) == nil)
        worker.end()
    }
}
