import Glibc
import LoopTestSupport
import RunLoopKit
import Synchronization
import TestSupport
import Testing

/// R22 to R27: the effects of other threads and nested activations on a run.
@Suite(.timeLimit(.minutes(10)))
struct StopAndWakeTests {
    @Test("R22: a stop with no activation running is not remembered")
    func stopBeforeRun() async {
        let result = await onLoopThread { loop in
            occupy(loop)
            loop.stop()
            return loop.run(for: .milliseconds(5))
        }
        #expect(result == .timedOut)
    }

    @Test(
        "R22: a stop by the loop itself, in any callout, leaves no wake-up behind for the next run",
        arguments: [
            "exit", "nested exit", "entry", "timer", "block", "late block", "source", "poll", "waiting", "woken",
        ]
    )
    func stopLeavesNothing(place: String) async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            occupy(loop, "inner")
            stop(loop, in: place)
            loop.run(for: place == "exit" || place == "poll" ? .zero : .seconds(60))
            observe(loop, in: trace)
            loop.run(for: .milliseconds(5))
            return trace.all
        }
        #expect(trace == ["entry", "timers", "sources", "waiting", "woken", "exit"])
    }

    /// The outer run must not be over before the nested one is.
    @Test(
        "R22: neither does a stop of a mode; a nested run's own stop leaves the outer one asleep",
        .repeatedWhenLate(by: .milliseconds(100))
    )
    func stopOfModeLeavesNothing() async {
        let (trace, time) = await onLoopThread { loop in
            let (trace, time) = (Trace(), Box(Duration.zero))
            occupy(loop)
            occupy(loop, "inner")
            let start = MonotonicInstant.now
            loop.perform(after: .zero) {
                loop.perform(after: .zero, in: ["inner"]) {
                    // Until then, both runs take no time, or this thread got no processor.
                    time.value = elapsed(since: start)
                    loop.stop(mode: "inner")
                }
                trace.note("\(loop.run(mode: "inner", for: .seconds(60)))")
                observe(loop, in: trace)
            }
            loop.run(for: .milliseconds(500))
            return (trace.all, time.value)
        }
        LatenessWitness.note(time)
        #expect(trace == ["stopped", "timers", "sources", "waiting", "woken", "exit"])
    }

    @Test(
        "R17, R22: a stop of an outer mode from a nested run's last turn ends the outer run before it sleeps"
    )
    func stopOfOuterMode() async {
        let result = await onLoopThread { loop in
            occupy(loop)
            occupy(loop, "inner")
            loop.perform {
                loop.perform(after: .zero, in: ["inner"]) { loop.stop(mode: .default) }
                loop.run(mode: "inner", for: .milliseconds(5))
            }
            return loop.run(for: .seconds(60))
        }
        #expect(result == .stopped)
    }

    @Test("R22: a stop from another thread ends a sleeping run")
    func stopFromElsewhere() async {
        let result = await onLoopThread { loop in
            occupy(loop)
            let other = TestThread {
                waitUntil { loop.isWaiting }
                loop.stop()
            }
            defer { other.join() }
            return loop.run(for: .seconds(60))
        }
        #expect(result == .stopped)
    }

    @Test("R22, R23: a stop ends the innermost activation only, and the outer mode is restored")
    func nestedStop() async {
        let (results, trace) = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            occupy(loop, "inner")
            loop.perform {
                loop.perform(in: "inner") { loop.stop() }
                trace.note("inner: \(loop.run(mode: "inner", for: .seconds(60)))")
                trace.note("back in \(loop.currentMode?.name ?? "none")")
            }
            return (loop.run(for: .milliseconds(10)), trace.all)
        }
        #expect(results == .timedOut)
        #expect(trace == ["inner: stopped", "back in default"])
    }

    @Test("R22, R23: another thread's stop that a nested run did not take ends the outer run; the loop's own does not")
    func lateStop() async {
        let results = await onLoopThread { loop in
            occupy(loop)
            occupy(loop, "nested")
            func nested(for time: Duration, _ stop: @escaping @Sendable () -> Void) -> [EventRunLoop.RunResult] {
                let inner = Box<EventRunLoop.RunResult?>(nil)
                loop.perform {
                    loop.perform(in: "nested", stop)
                    // The turn that sees the stop has also timed out, and that has priority (R17).
                    inner.value = loop.run(mode: "nested", for: .zero)
                }
                return [loop.run(for: time), inner.value ?? .finished]
            }
            // However long the thread takes, the time of the run that it stops is not over yet.
            let stopped = nested(for: .seconds(60)) { TestThread { loop.stop() }.join() }
            return stopped + nested(for: .milliseconds(200)) { loop.stop() }
        }
        #expect(results == [.stopped, .timedOut, .timedOut, .timedOut])
    }

    @Test("R23: a stop of the outer activation, made before a nested one, is still in effect after it")
    func outerStopSurvives() async {
        let (result, inner) = await onLoopThread { loop in
            let inner = Box(EventRunLoop.RunResult.finished)
            occupy(loop)
            loop.perform {
                loop.stop()
                inner.value = loop.run(for: .milliseconds(1))
            }
            return (loop.run(for: .seconds(60)), inner.value)
        }
        #expect(inner == .timedOut)
        #expect(result == .stopped)
    }

    @Test("R23: a nested run does not re-enter an observer, timer or source in its callout; others do run")
    func noReentry() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let other = EventSource { _ in trace.note("other source") }
            loop.add(other)
            let source = EventSource { source in
                trace.note("source")
                source.signal()
                other.signal()
                loop.run(for: .zero)
                trace.note("source ends")
                if trace.all.count > 6 { source.invalidate() }
            }
            loop.add(source)
            source.signal()
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["source", "other source", "source ends"])
    }

    @Test("R23, R29: a source signalled in its callout and skipped by a nested run is performed in the next turn")
    func passedOver() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let source = EventSource { source in
                trace.note("source")
                guard trace.all.count == 1 else { return loop.stop() }
                source.signal()
                loop.run(for: .zero)
                trace.note("nested run over")
            }
            loop.add(source)
            source.signal()
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == ["source", "nested run over", "source"])
    }

    @Test("R23: a repeating timer that runs the loop does not fire in that run and does not keep it busy")
    func timerReentry() async {
        let (trace, turns) = await onLoopThread { loop in
            let (trace, turns) = (Trace(), Counter())
            occupy(loop)
            loop.add(
                EventTimer(at: .now, every: .nanoseconds(100)) { timer in
                    trace.note("timer")
                    loop.add(LoopObserver(activities: .beforeTimers) { _, _ in turns.increment() })
                    loop.run(for: .milliseconds(20))
                    trace.note("timer ends")
                    timer.invalidate()
                    loop.stop()
                }
            )
            loop.run()
            return (trace.all, turns.value)
        }
        #expect(trace == ["timer", "timer ends"])
        #expect(turns < 10, "the nested run sleeps, though the timer's date has passed")
    }

    @Test("R23: an observer that runs the loop does not observe that nested run")
    func observerReentry() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.add(
                LoopObserver(activities: .beforeTimers) { _, _ in
                    trace.note("observer")
                    loop.run(for: .zero)
                }
            )
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["observer"])
    }

    @Test("R24: neither a signal nor a block without wake ends a sleep; those with wake do")
    func whatWakes() async {
        let (quiet, loud) = await onLoopThread { loop in
            let source = occupy(loop)
            let trace = Trace()
            let other = TestThread {
                waitUntil { loop.isWaiting }
                let pulse = loop.heartbeat.pulse
                source.signal()
                loop.perform(wake: false) { trace.note("ran") }
                usleep(20_000)
                trace.note(loop.heartbeat.pulse == pulse ? "still asleep" : "awake")
                loop.perform { loop.stop() }
            }
            defer { other.join() }
            let result = loop.run(for: .seconds(60))
            return (trace.all, result)
        }
        #expect(quiet == ["still asleep", "ran"])
        #expect(loud == .stopped)
    }

    @Test("R24: a block ends a sleep even behind blocks for other modes, or blocks that do not wake")
    func wakesBehindOthers() async {
        let (each, ran) = (5_000, Counter())
        let left = await onLoopThread { loop in
            occupy(loop)
            loop.perform(in: "other", wake: false) {}
            let threads = (0..<4).map { number in
                TestThread {
                    for index in 0..<each {
                        switch (index + number) % 4 {
                        case 0: loop.perform(in: "other") {}
                        case 1: loop.perform(wake: false) {}
                        default: break
                        }
                        let before = ran.value
                        loop.perform { ran.increment() }
                        // Sometimes the loop has to fall asleep before the next block.
                        if index % 16 == 0 { waitUntil { ran.value > before } }
                    }
                    loop.perform { if ran.value == 4 * each { loop.stop() } }
                }
            }
            // Without a timeout: a lost wake-up exceeds the suite's time limit.
            loop.run()
            for thread in threads { thread.join() }
            return loop.snapshot.queuedBlocks
        }
        #expect(ran.value == 4 * each)
        #expect(left >= 1)
    }

    @Test("R24: signalAndWake makes a sleeping loop perform the source")
    func signalAndWake() async {
        let result = await onLoopThread { loop in
            let source = occupy(loop)
            let other = TestThread {
                waitUntil { loop.isWaiting }
                source.signalAndWake()
            }
            defer { other.join() }
            return loop.run(for: .seconds(60), returnAfterSourceHandled: true)
        }
        #expect(result == .handledSource)
    }

    @Test("R25: a wake-up made before the loop sleeps ends the next sleep at once")
    func earlyWakeUp() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            occupy(loop)
            let sleeps = Counter()
            let end = EventTimer(after: .seconds(60)) { _ in loop.stop() }
            loop.add(end)
            loop.add(
                LoopObserver(activities: .beforeWaiting) { _, _ in
                    // The wake-up ends the first sleep; only this ends the second.
                    if sleeps.increment() == 2 { end.nextFireDate = .now }
                }
            )
            loop.wakeUp()
            loop.run()
            return trace.all
        }
        let turn = ["timers", "sources", "waiting", "woken"]
        #expect(trace == ["entry"] + turn + turn + ["exit"])
    }

    @Test("R25: any number of wake-ups before the loop has run count as one")
    func collapsedWakeUps() async {
        let turns = await onLoopThread { loop in
            let sleeps = Counter()
            let end = EventTimer(after: .seconds(60)) { _ in loop.stop() }
            loop.add(end)
            loop.add(
                LoopObserver(activities: .beforeWaiting) { _, _ in
                    // The wake-ups end the first sleep; only this ends the second.
                    if sleeps.increment() == 2 { end.nextFireDate = .now.advanced(by: .milliseconds(5)) }
                }
            )
            for _ in 0..<1000 { loop.wakeUp() }
            loop.run()
            return sleeps.value
        }
        #expect(turns == 2)
    }

    @Test("R25: with four threads no wake-up is lost: every block runs although the loop has no timeout")
    func wakeUpStress() async {
        let perThread = 10_000
        let count = await onLoopThread { loop in
            let count = Counter()
            occupy(loop)
            let threads = (0..<4).map { _ in
                TestThread {
                    for _ in 0..<perThread {
                        // One at a time, so that the loop goes to sleep in between; a lost wake-up would hang
                        // forever.
                        let done = Counter()
                        loop.perform {
                            done.increment()
                            if count.increment() == 4 * perThread { loop.stop() }
                        }
                        waitBriefly { done.value > 0 }
                        guard done.value > 0 else { return loop.stop() }
                    }
                }
            }
            loop.run()
            for thread in threads { thread.join() }
            return count.value
        }
        #expect(count == 4 * perThread)
    }

    @Test("R25: a wake-up that a nested run has taken is passed on to the outer one")
    func wakeUpPassedOn() async {
        let result = await onLoopThread { loop in
            occupy(loop)
            occupy(loop, "inner")
            loop.add(
                LoopObserver(activities: .beforeWaiting, repeats: false) { _, _ in
                    // For the outer mode: the wake-up ends the nested run's sleep, and nothing else would end the outer one's.
                    loop.perform { loop.stop() }
                    loop.run(mode: "inner", for: .milliseconds(5))
                }
            )
            return loop.run(for: .seconds(60))
        }
        #expect(result == .stopped)
    }

    @Test("R26: a signal handler can wake the loop")
    func signalHandler() async {
        let wakes = await onLoopThread { loop in
            let turns = Counter()
            occupy(loop)
            loop.add(
                LoopObserver(activities: .afterWaiting) { _, _ in
                    if turns.increment() == 2 { loop.stop() }
                }
            )
            SignalledLoop.loop.withLock { $0 = loop }
            SignalledLoop.reference.store(
                UInt(bitPattern: unsafe Unmanaged.passUnretained(loop).toOpaque()),
                ordering: .sequentiallyConsistent
            )
            let before = signal(SIGUSR2) { _ in
                let address = SignalledLoop.reference.load(ordering: .relaxed)
                guard let pointer = unsafe UnsafeRawPointer(bitPattern: address) else { return }
                unsafe Unmanaged<EventRunLoop>.fromOpaque(pointer).takeUnretainedValue().wakeUp()
            }
            let other = TestThread {
                waitUntil { loop.isWaiting }
                kill(getpid(), SIGUSR2)
                waitUntil { turns.value >= 1 && loop.isWaiting }
                kill(getpid(), SIGUSR2)
            }
            let result = loop.run(for: .seconds(60))
            other.join()
            // One that comes later would end the process.
            signal(SIGUSR2, result == .stopped ? before : SIG_IGN)
            return (turns.value, result)
        }
        #expect(wakes == (2, .stopped))
    }

    @Test("R27: a timer added by another thread fires even if the loop sleeps without a timeout")
    func timerFromElsewhere() async {
        let result = await onLoopThread { loop in
            occupy(loop)
            let other = TestThread {
                waitUntil { loop.isWaiting }
                loop.add(EventTimer(after: .milliseconds(1)) { _ in loop.stop() })
            }
            defer { other.join() }
            return loop.run(for: .seconds(60))
        }
        #expect(result == .stopped)
    }

    @Test("R27: moving a timer forward from another thread takes effect on a sleeping loop")
    func movedFromElsewhere() async {
        let result = await onLoopThread { loop in
            let timer = EventTimer(after: .seconds(3600)) { _ in loop.stop() }
            loop.add(timer)
            let other = TestThread {
                waitUntil { loop.isWaiting }
                timer.nextFireDate = .now
            }
            defer { other.join() }
            return loop.run(for: .seconds(60))
        }
        #expect(result == .stopped)
    }
}

/// Makes the loop stop itself in a callout of the next run.
private func stop(_ loop: EventRunLoop, in place: String) {
    func observe(_ activity: EventRunLoop.Activity) {
        loop.add(LoopObserver(activities: activity, repeats: false) { _, _ in loop.stop() })
    }
    switch place {
    case "entry": observe(.entry)
    case "waiting": observe(.beforeWaiting)
    case "exit": observe(.exit)
    case "nested exit":
        loop.add(LoopObserver(activities: .exit, repeats: false) { _, _ in loop.stop() }, to: "inner")
        loop.perform(after: .zero) {
            loop.run(mode: "inner", for: .zero)
            loop.stop()
        }
    case "woken":
        loop.perform(after: .zero) {}
        observe(.afterWaiting)
    case "timer": loop.perform(after: .zero) { loop.stop() }
    case "block": loop.perform { loop.stop() }
    case "late block": loop.perform(after: .zero) { loop.perform(wake: false) { loop.stop() } }
    default:
        let source = EventSource { source in
            source.invalidate()
            loop.stop()
        }
        loop.add(source)
        source.signal()
    }
}

/// Spins, then yields; gives up after a minute, which means that a wake-up was lost.
private func waitBriefly(_ condition: () -> Bool) {
    let deadline = MonotonicInstant.now.advanced(by: .seconds(60))
    var spins = 0
    while !condition() {
        spins += 1
        if spins > 100 { sched_yield() }
        if spins.isMultiple(of: 1000), MonotonicInstant.now > deadline { return }
    }
}

/// The signal handler's data: the object, retained, and its address, readable without a lock.
private enum SignalledLoop {
    static let loop = Mutex<EventRunLoop?>(nil)
    static let reference = Atomic<UInt>(0)
}
