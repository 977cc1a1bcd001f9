import Glibc
import RunLoopKit
import StackCapture
import StallDetection
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallMonitor

// The watchdog's thread: what wakes it, and what it does between two looks.
extension WatchdogStateTests {
    /// Starts the watchdog's thread, which takes no stacks. It ends by the order to stop.
    private func start(
        _ watchdog: Watchdog,
        _ notices: Mailbox<StallNotice>,
        _ ledger: WatchdogLedger = WatchdogLedger()
    ) throws -> MonitorThread {
        try MonitorThread(name: "watchdog-test") {
            let source = StackSource(signal: 0) { _ in }
            watchdog.run(
                WatchdogState(notices: notices, ledger: ledger, stackSource: source, wakeFlags: watchdog.wakeFlags)
            )
        }
    }

    @Test("An order is carried out before the next tick, even if every loop is at rest")
    func promptOrders() throws {
        let (watchdog, notices) = (Watchdog(), Mailbox<StallNotice>(capacity: 100))
        let thread = try start(watchdog, notices)
        let (slow, fine) = (QuietLoop("slow"), QuietLoop("fine"))
        for (number, loop, tick) in [(1, slow, Duration.seconds(3600)), (2, fine, .milliseconds(1))] {
            let wakeFlag = watchdog.wakeFlags.makeFlag(for: watchdog)
            #expect(loop.heartbeat.attach(wakeFlag))
            let rule = StallRule(tick: tick, ticks: 2, repeated: nil, congested: nil)
            let identity = WatchIdentity(number: number, name: .init(type: .runLoop, label: loop.label), since: .now)
            // The first loop is busy: the watchdog sleeps for its tick when the second one is added.
            watchdog.give(.watch(identity, .loop(loop), rule, wakeFlag, []))
            loop.leaveRest()
        }
        var labels: [String] = []
        while labels.isEmpty, let batch = notices.take(until: .now + .seconds(60)), !batch.isEmpty {
            for case .began(let stall) in batch { labels.append(stall.watch.name.label) }
        }
        #expect(labels == ["fine"])
        for loop in [slow, fine] { loop.rest() }
        watchdog.give(.stop)
        #expect(thread.join(by: .now + .seconds(60)))
    }

    @Test("A stall is found although orders never cease")
    func ceaselessOrders() throws {
        let (watchdog, notices) = (Watchdog(), Mailbox<StallNotice>(capacity: 100))
        let thread = try start(watchdog, notices)
        let (loop, floods, isOver) = (QuietLoop(), Flag(), Flag())
        let wakeFlag = watchdog.wakeFlags.makeFlag(for: watchdog)
        #expect(loop.heartbeat.attach(wakeFlag))
        let rule = StallRule(tick: .milliseconds(1), ticks: 2, repeated: nil, congested: nil)
        let identity = WatchIdentity(number: 1, name: .init(type: .runLoop, label: loop.label), since: .now)
        // Each signal stands for an order. They come faster than the watchdog takes them.
        let flood = try MonitorThread(name: "flood") {
            while !isOver.isSet {
                watchdog.semaphore.signal()
                floods.set()
            }
        }
        while !floods.isSet { usleep(1_000) }
        watchdog.give(.watch(identity, .loop(loop), rule, wakeFlag, []))
        loop.leaveRest()
        var stalls = 0
        while stalls == 0, let batch = notices.take(until: .now + .seconds(60)), !batch.isEmpty {
            for case .began in batch { stalls += 1 }
        }
        #expect(stalls == 1)
        isOver.set()
        loop.rest()
        watchdog.give(.stop)
        #expect(flood.join(by: .now + .seconds(60)) && thread.join(by: .now + .seconds(60)))
    }

    @Test("A stop between a watch's beginning and the watchdog's first look at it counts towards no stall")
    func stopBeforeTheFirstLook() throws {
        let (watchdog, notices, ledger) = (Watchdog(), Mailbox<StallNotice>(capacity: 100), WatchdogLedger())
        let loops = [QuietLoop("first"), QuietLoop("second")]
        for (number, loop) in loops.enumerated() {
            let wakeFlag = watchdog.wakeFlags.makeFlag(for: watchdog)
            #expect(loop.heartbeat.attach(wakeFlag))
            let rule = StallRule(tick: .milliseconds(50), ticks: 40, repeated: nil, congested: nil)
            let identity = WatchIdentity(number: number, name: .init(type: .runLoop, label: loop.label), since: .now)
            watchdog.give(.watch(identity, .loop(loop), rule, wakeFlag, []))
            loop.leaveRest()
        }
        // Simulates a stop: the watchdog's thread does not start before it is over.
        _ = stallInSleep(3_000)
        let thread = try start(watchdog, notices, ledger)
        // The loops do stall, but that much later.
        var spans: [StallSpan] = []
        while spans.count < 2, let batch = notices.take(until: .now + .seconds(60)), !batch.isEmpty {
            for case .began(let stall) in batch { spans.append(stall.span) }
        }
        #expect(spans.count == 2 && spans.allSatisfy { $0.excluded >= .milliseconds(2_900) }, "\(spans)")
        for loop in loops { loop.rest() }
        watchdog.give(.stop)
        #expect(thread.join(by: .now + .seconds(60)))
        let pauses = ledger.snapshot.pauses.totals[.stopped]
        #expect(pauses?.count == 1 && (pauses?.durationNs ?? 0) >= 2_900_000_000)
    }

    @Test(
        "A loop that leaves its rest just before the flags are checked prevents parking; just after, it ends it"
    )
    func departureWhileParking() {
        let watchdog = Watchdog()
        let wakeFlag = watchdog.wakeFlags.makeFlag(for: watchdog)
        let afterwards = watchdog.park {
            defer { wakeFlag.loopDidLeaveRest() }
            return watchdog.wakeFlags.hasRaised
        }
        #expect(afterwards && watchdog.semaphore.wait(until: .now), "nothing else would wake it")
        #expect(watchdog.wakeFlags.takeRaised() == [wakeFlag.place])
        let before = watchdog.park {
            wakeFlag.loopDidLeaveRest()
            return watchdog.wakeFlags.hasRaised
        }
        #expect(!before && watchdog.wakeFlags.takeRaised() == [wakeFlag.place])
        // The signal that this departure posted is stale: the next departure ends the next wait.
        while watchdog.semaphore.wait(until: .now) {}
        #expect(watchdog.park { watchdog.wakeFlags.hasRaised })
        wakeFlag.loopDidLeaveRest()
        #expect(watchdog.semaphore.wait(until: .now) && !watchdog.semaphore.wait(until: .now))
    }

    @Test("No departure is lost between a loop that raises its wake flag and a watchdog that parks")
    func noLostDeparture() throws {
        let (watchdog, notices, ledger) = (Watchdog(), Mailbox<StallNotice>(capacity: 10_000), WatchdogLedger())
        let thread = try MonitorThread(name: "round-test") {
            let source = StackSource(signal: 0) { _ in }
            watchdog.run(
                WatchdogState(notices: notices, ledger: ledger, stackSource: source, wakeFlags: watchdog.wakeFlags)
            )
            notices.close()
        }
        let loops = (0..<3).map { QuietLoop("\($0)") }
        let rule = StallRule(tick: .milliseconds(1), ticks: 2, repeated: nil, congested: nil)
        for (number, loop) in loops.enumerated() {
            let wakeFlag = watchdog.wakeFlags.makeFlag(for: watchdog)
            #expect(loop.heartbeat.attach(wakeFlag))
            let identity = WatchIdentity(number: number, name: .init(type: .runLoop, label: loop.label), since: .now)
            watchdog.give(.watch(identity, .loop(loop), rule, wakeFlag, []))
        }
        // Each departure lasts until it is reported as a stall: a lost one is never reported.
        var random = SplitMix64(seed: 7)
        var told = 0
        for departure in 1...150 {
            let loop = loops[Int.random(in: 0..<3, using: &random)]
            loop.leaveRest()
            let deadline = MonotonicInstant.now + .seconds(60)
            wait: while let batch = notices.take(until: deadline), !batch.isEmpty {
                for case .began in batch {
                    told += 1
                    loop.rest()
                    break wait
                }
            }
            guard told == departure else { break }
            let pause = MonotonicInstant.now + .microseconds(Int.random(in: 0...3_000, using: &random))
            while MonotonicInstant.now < pause {}
        }
        watchdog.give(.stop)
        #expect(told == 150 && thread.join(by: .now + .seconds(60)))
    }

    @Test("That stacks are taken again is reported although no loop leaves its rest any more")
    func recoveryAtRest() throws {
        let (watchdog, notices, ledger) = (Watchdog(), Mailbox<StallNotice>(capacity: 100), WatchdogLedger())
        let meter = CostMeter()
        let limits = StallMonitor.CostLimits(
            processorShare: 1,
            processorBurst: .seconds(600),
            heldShare: 1,
            heldBurst: .milliseconds(300)
        )
        let held = CapturedStack.Cost(heldNanoseconds: 400_000_000, unwindNanoseconds: 0, bytesCopied: 0)
        meter.measure({}, costs: { _ in [held] })
        var costs = CostGuard(limits: limits, meter: meter, notices: notices, ledger: ledger)
        costs.update(at: .now)
        let thread = try MonitorThread(name: "cost-test") { [costs] in
            let source = StackSource(signal: 0) { _ in }
            watchdog.run(
                WatchdogState(
                    notices: notices,
                    ledger: ledger,
                    stackSource: source,
                    wakeFlags: watchdog.wakeFlags,
                    costs: costs
                )
            )
        }
        var told: [String] = []
        let deadline = MonotonicInstant.now + .seconds(60)
        while told.count < 2, let batch = notices.take(until: deadline), !batch.isEmpty {
            for notice in batch {
                switch notice {
                case .fault(let error): told.append("fault \(error.code.name)")
                case .mended(let error): told.append("mended \(error.code.name)")
                default: break
                }
            }
        }
        #expect(told == ["fault captures_stopped", "mended captures_stopped"] && ledger.snapshot.looks == 0)
        watchdog.give(.stop)
        #expect(thread.join(by: .now + .seconds(60)))
    }
}

private final class Flag: Sendable {
    private let value = Atomic(false)
    var isSet: Bool { value.load(ordering: .acquiring) }
    func set() { value.store(true, ordering: .releasing) }
}
