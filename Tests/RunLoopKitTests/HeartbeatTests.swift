import Glibc
import LoopTestSupport
import RunLoopKit
import Synchronization
import TestSupport
import Testing

/// What a loop publishes, and what it guarantees to a watcher.
@Suite(.timeLimit(.minutes(10)))
struct HeartbeatTests {
    @Test("A pulse carries phase, mode and turn, each within its bits")
    func layout() {
        let pulse = LoopHeartbeat.Pulse(phase: .beforeWaiting, modeIndex: 65_535, turn: 0xFF_FFFF_FFFF)
        #expect(pulse.rawValue == 0xFF_FFFF_FFFF_FFFF_04)
        #expect((pulse.phase, pulse.modeIndex, pulse.turn) == (.beforeWaiting, 65_535, 0xFF_FFFF_FFFF))
        let wrapped = LoopHeartbeat.Pulse(phase: .entry, modeIndex: 65_536, turn: 1 << 40)
        #expect((wrapped.phase, wrapped.modeIndex, wrapped.turn) == (.entry, 0, 0))
    }

    @Test("Only idle and waiting are rest")
    func rest() {
        #expect(LoopPhase.allCases.filter(\.isAtRest) == [.idle, .waiting])
        #expect(LoopPhase.allCases.filter { $0.activity == nil } == [.idle, .waiting])
    }

    @Test("A turn begins with a departure from rest; a change between two rest phases is none")
    func restToRest() {
        let heartbeat = LoopHeartbeat()
        for phase in [LoopPhase.afterWaiting, .waiting] { heartbeat.publish(phase) }
        let turn = heartbeat.pulse.turn
        heartbeat.publish(.idle)
        #expect(heartbeat.pulse.turn == turn)
        heartbeat.publish(.afterWaiting)
        #expect(heartbeat.pulse.turn == turn + 1)
    }

    @Test("The phase is that of the activity, and in callouts that of the latest one; work before waiting is not rest")
    func phases() async {
        let (seen, before, after) = await onLoopThread { loop in
            let seen = Trace()
            let note: @Sendable (String) -> Void = { seen.note("\($0): \(loop.heartbeat.pulse.phase)") }
            let before = loop.heartbeat.pulse.phase
            loop.add(LoopObserver { _, activity in note(name(of: activity)) })
            loop.add(EventTimer(at: .now) { _ in note("timer") })
            loop.perform { note("block") }
            loop.run(for: .seconds(60))
            return (seen.all, before, loop.heartbeat.pulse.phase)
        }
        #expect(
            seen == [
                "entry: entry", "timers: beforeTimers", "sources: beforeSources", "block: beforeSources",
                "waiting: beforeWaiting", "woken: afterWaiting", "timer: afterWaiting", "exit: exit",
            ]
        )
        #expect(before == .idle)
        #expect(after == .idle)
    }

    @Test("A turn's number grows with each turn, and a return to an outer activation is a transition")
    func turns() async {
        let (turns, outer, restored) = await onLoopThread { loop in
            let turns = Box<[UInt64]>([])
            let pulses = Box<[LoopHeartbeat.Pulse]>([])
            occupy(loop)
            loop.add(
                LoopObserver(activities: .beforeTimers) { _, _ in
                    turns.value.append(loop.heartbeat.pulse.turn)
                    if turns.value.count == 3 { loop.stop() } else { loop.wakeUp() }
                }
            )
            loop.perform {
                pulses.value.append(loop.heartbeat.pulse)
                // It is stopped immediately, without a turn.
                loop.add(LoopObserver(activities: .entry, repeats: false) { _, _ in loop.stop() }, to: "inner")
                occupy(loop, "inner")
                loop.run(mode: "inner")
                pulses.value.append(loop.heartbeat.pulse)
            }
            loop.run()
            return (turns.value, pulses.value[0], pulses.value[1])
        }
        #expect(turns.count == 3)
        #expect(turns == turns.sorted() && Set(turns).count == turns.count)
        #expect(outer != restored)
        #expect((outer.phase, outer.modeIndex) == (restored.phase, restored.modeIndex))
    }

    @Test("There is one watcher at a time; after it is detached, another can be attached")
    func attachment() {
        let heartbeat = LoopHeartbeat()
        let (first, second) = (CountingWatcher(), CountingWatcher())
        #expect(heartbeat.attach(first))
        #expect(!heartbeat.attach(second))
        heartbeat.detach()
        #expect(heartbeat.attach(second))
        #expect(heartbeat.requestWakeSignal())
        heartbeat.publish(.entry)
        #expect((first.calls.value, second.calls.value) == (0, 1))
    }

    @Test("A wake-up requested at rest is made by the next departure, once; later departures make no call")
    func wakeSignal() {
        let heartbeat = LoopHeartbeat()
        let watcher = CountingWatcher()
        _ = heartbeat.attach(watcher)
        #expect(heartbeat.requestWakeSignal())
        heartbeat.publish(.entry)
        heartbeat.publish(.waiting)
        heartbeat.publish(.afterWaiting)
        #expect(watcher.calls.value == 1)
        heartbeat.publish(.waiting)
        #expect(heartbeat.requestWakeSignal())
        heartbeat.publish(.afterWaiting)
        #expect(watcher.calls.value == 2)
    }

    @Test("A request for a wake-up while busy is refused and leaves nothing behind")
    func refusedWakeSignal() {
        let heartbeat = LoopHeartbeat()
        let watcher = CountingWatcher()
        _ = heartbeat.attach(watcher)
        heartbeat.publish(.beforeSources)
        #expect(!heartbeat.requestWakeSignal())
        heartbeat.publish(.waiting)
        heartbeat.publish(.afterWaiting)
        #expect(watcher.calls.value == 0)
    }

    @Test("In a fork's child, detaching does not wait for a lock that the parent held")
    func detachmentInChild() {
        final class Watcher: LoopWatcher {
            let heartbeat = LoopHeartbeat()
            let calls = Counter()

            func loopDidLeaveRest() {
                calls.increment()
                // The lock is held during this call.
                heartbeat.detachInChild()
            }
        }
        let watcher = Watcher()
        let heartbeat = watcher.heartbeat
        #expect(heartbeat.attach(watcher) && heartbeat.requestWakeSignal())
        heartbeat.publish(.entry)
        heartbeat.publish(.exit)
        #expect(watcher.calls.value == 1)
        #expect(!heartbeat.attach(CountingWatcher()))
        heartbeat.detachInChild()
        #expect(heartbeat.attach(CountingWatcher()))
    }

    @Test("Detaching withdraws the request for a wake-up")
    func detachedWish() {
        let heartbeat = LoopHeartbeat()
        let watcher = CountingWatcher()
        _ = heartbeat.attach(watcher)
        _ = heartbeat.requestWakeSignal()
        heartbeat.detach()
        heartbeat.publish(.entry)
        #expect(watcher.calls.value == 0)
    }

    @Test("The end of the thread makes a requested wake-up, and refuses later requests")
    func end() async {
        let watcher = CountingWatcher()
        let heartbeat = await onLoopThread { loop in
            _ = loop.heartbeat.attach(watcher)
            _ = loop.heartbeat.requestWakeSignal()
            return loop.heartbeat
        }
        #expect(heartbeat.hasEnded)
        #expect(watcher.calls.value == 1)
        #expect(!heartbeat.requestWakeSignal())
    }

    @Test("Turns are stamped while watched: at a departure from rest and at the beginning of a turn, and not between")
    func turnStamps() {
        let heartbeat = LoopHeartbeat()
        heartbeat.publish(.entry)
        #expect(heartbeat.turnStamp == 0)
        heartbeat.publish(.idle)
        _ = heartbeat.attach(CountingWatcher())
        let start = MonotonicInstant.now.nanoseconds
        heartbeat.publish(.entry)
        let departure = heartbeat.turnStamp
        #expect(departure >= start)
        heartbeat.publish(.beforeTimers)
        let beginning = heartbeat.turnStamp
        #expect(beginning >= departure)
        heartbeat.publish(.beforeSources)
        heartbeat.publish(.beforeWaiting)
        heartbeat.publish(.waiting)
        #expect(heartbeat.turnStamp == beginning)
        // Not every clock ticks between two transitions.
        waitUntil { MonotonicInstant.now.nanoseconds > beginning }
        heartbeat.publish(.afterWaiting)
        #expect(heartbeat.turnStamp > beginning)
    }

    @Test("A transition stamp is made by the very next transition, once, and is taken once")
    func transitionStamp() {
        let heartbeat = LoopHeartbeat()
        _ = heartbeat.attach(CountingWatcher())
        heartbeat.publish(.beforeSources)
        heartbeat.requestTransitionStamp()
        #expect(heartbeat.takeTransitionStamp() == nil)
        let before = MonotonicInstant.now.nanoseconds
        heartbeat.publish(.beforeWaiting)
        let after = MonotonicInstant.now.nanoseconds
        heartbeat.publish(.waiting)
        let stamp = heartbeat.takeTransitionStamp() ?? 0
        #expect((before...after).contains(stamp))
        #expect(heartbeat.takeTransitionStamp() == nil)
    }

    @Test("No departure from rest is lost: a watcher that waits for its requested wake-up is always woken")
    func dekker() {
        // Each round has two handovers. On a machine with busy CPUs that takes milliseconds, and fewer rounds must
        // suffice.
        let last = Box(200_000)
        let deadline = MonotonicInstant.now.advanced(by: .seconds(5))
        let heartbeat = LoopHeartbeat()
        let watcher = CountingWatcher()
        _ = heartbeat.attach(watcher)
        let acknowledged = Counter()
        let granted = Counter()
        // The loop departs, and stays busy until the watcher knows: a lost departure is lost forever.
        let loop = TestThread {
            // A cheap generator: the system's takes longer than the window to be hit.
            var random = SplitMix64(seed: 1)
            for round in 1... {
                // After a varying delay, to hit the request at each of its steps.
                for _ in 0..<random.next() % 64 { delay() }
                heartbeat.publish(.afterWaiting)
                guard spin(until: { acknowledged.value >= round }), round < last.value else { return }
                heartbeat.publish(.waiting)
            }
        }
        for round in 1... {
            if round >= 1000, MonotonicInstant.now > deadline { last.value = round }
            let calls = watcher.calls.value
            if heartbeat.requestWakeSignal() {
                granted.increment()
                guard spin(until: { watcher.calls.value > calls }) else { break }
            }
            // Refused or woken: the loop must be busy now or immediately afterwards.
            guard spin(until: { !heartbeat.pulse.isAtRest }) else { break }
            acknowledged.increment()
            guard round < last.value else { break }
            guard spin(until: { heartbeat.pulse.isAtRest || heartbeat.pulse.turn != UInt64(round) }) else { break }
        }
        loop.join()
        #expect(acknowledged.value == last.value)
        #expect(granted.value > 0)
        #expect(watcher.calls.value == granted.value)
    }

    @Test("A real loop under random work: each accepted request for a wake-up is followed by one call")
    func dekkerOnRealLoop() async {
        let (granted, calls) = await onLoopThread { loop in
            let watcher = CountingWatcher()
            _ = loop.heartbeat.attach(watcher)
            occupy(loop)
            let granted = Counter()
            let deadline = MonotonicInstant.now.advanced(by: .seconds(5))
            let observer = TestThread {
                for round in 0..<20_000 where round < 500 || MonotonicInstant.now < deadline {
                    let calls = watcher.calls.value
                    // Refused while the loop is busy, however long it waits for a processor.
                    guard spin(until: { loop.heartbeat.requestWakeSignal() }) else { break }
                    granted.increment()
                    loop.wakeUp()
                    guard spin(until: { watcher.calls.value > calls }) else { break }
                }
                loop.stop()
            }
            loop.run()
            observer.join()
            loop.heartbeat.detach()
            return (granted.value, watcher.calls.value)
        }
        #expect(granted >= 500)
        #expect(calls == granted)
    }
}

/// Also used by the tests of a pool's heartbeat.
final class CountingWatcher: LoopWatcher {
    let calls = Counter()
    func loopDidLeaveRest() { calls.increment() }
}

/// A few nanoseconds that no optimiser removes.
func delay() { _ = delays.add(1, ordering: .relaxed) }
private let delays = Atomic<Int>(0)

/// Spins, yielding occasionally on a machine with few cores. False if the condition does not hold for a long time.
func spin(until condition: () -> Bool) -> Bool {
    var rounds = 0
    var deadline: MonotonicInstant?
    while !condition() {
        rounds += 1
        guard rounds.isMultiple(of: 64) else { continue }
        sched_yield()
        let limit = deadline ?? .now.advanced(by: .seconds(60))
        deadline = limit
        if MonotonicInstant.now > limit { return false }
    }
    return true
}
