import Glibc
import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// The cases of libuv's async, loop, run, active, idle and poll-close tests that apply here.
@Suite(.timeLimit(.minutes(10)))
struct LibuvLoopTests {
    @Test(
        "R24: a source signalled endlessly by another thread is performed, invalidates itself and ends the run",
        .stands(for: "async.async")
    )
    func signalledWithoutEnd() async {
        let (performs, sleeps, result) = await onLoopThread { loop in
            let (performs, sleeps) = (Counter(), Counter())
            let source = EventSource { source in if performs.increment() == 3 { source.invalidate() } }
            loop.add(source)
            let other = Box<TestThread?>(nil)
            loop.add(
                LoopObserver(activities: .beforeWaiting) { _, _ in
                    guard sleeps.increment() == 1 else { return }
                    other.value = TestThread { while performs.value < 3 { source.signalAndWake() } }
                }
            )
            let result = loop.run(for: .seconds(60))
            other.value?.join()
            return (performs.value, sleeps.value, result)
        }
        #expect(performs == 3)
        #expect(sleeps > 0)
        #expect(result == .finished)
    }

    @Test(
        "R25: a wake-up without work ends a sleep, once",
        .stands(for: "async_null_cb.async_null_cb")
    )
    func bareWakeUp() async {
        let (wakes, result) = await onLoopThread { loop in
            let wakes = Counter()
            let source = occupy(loop)
            loop.add(
                LoopObserver(activities: .afterWaiting) { _, _ in
                    wakes.increment()
                    source.invalidate()
                }
            )
            let other = TestThread {
                waitUntil { loop.isWaiting }
                loop.wakeUp()
            }
            let result = loop.run(for: .seconds(60))
            other.join()
            return (wakes.value, result)
        }
        #expect(wakes == 1)
        #expect(result == .finished)
    }

    @Test(
        "R22: a stop in a timer ends the run after that turn; the next runs continue from there",
        .stands(for: "loop_stop.loop_stop")
    )
    func stoppedAndResumed() async {
        let (fires, turns, results) = await onLoopThread { loop in
            let (fires, turns) = (Counter(), Counter())
            loop.add(
                LoopObserver(activities: .beforeTimers) { observer, _ in
                    if turns.increment() == 10 { observer.invalidate() }
                }
            )
            loop.add(
                EventTimer(every: .milliseconds(2)) { timer in
                    let count = fires.increment()
                    if count == 1 { loop.stop() }
                    if count == 10 { timer.invalidate() }
                }
            )
            let first = loop.run(for: .seconds(60))
            let afterFirst = (fires.value, turns.value)
            let second = loop.run(for: .zero)
            let seen = turns.value > afterFirst.1
            let third = loop.run(for: .seconds(60))
            return (
                [afterFirst.0, fires.value], turns.value,
                [first == .stopped, second == .timedOut, third == .finished, seen]
            )
        }
        #expect(fires == [1, 10])
        #expect(turns == 10)
        #expect(results == [true, true, true, true])
    }

    @Test(
        "R22: a stop before the run is not remembered: the due timer fires (libuv remembers it, and the timer waits)",
        .stands(for: "loop_stop.loop_stop_before_run")
    )
    func stopBefore() async {
        let (fires, result) = await onLoopThread { loop in
            let fires = Counter()
            loop.add(EventTimer(at: .now) { _ in fires.increment() })
            loop.stop()
            let result = loop.run(for: .seconds(60))
            return (fires.value, result)
        }
        #expect(fires == 1)
        #expect(result == .finished)
    }

    @Test(
        "R9: a mode is populated while it has a timer or a block, and not afterwards",
        .stands(for: "loop_alive.loop_alive")
    )
    func alive() async {
        let results = await onLoopThread { loop in
            var results = [loop.run(for: .zero)]
            loop.add(EventTimer(after: .milliseconds(2)) { _ in })
            results += [loop.run(for: .zero), loop.run(for: .seconds(60)), loop.run(for: .zero)]
            loop.perform {}
            results += [loop.run(for: .zero), loop.run(for: .zero)]
            return results
        }
        #expect(results == [.finished, .timedOut, .finished, .finished, .timedOut, .finished])
    }

    @Test(
        "R2: a loop that ends with a running timer and a waiting block releases both and calls neither",
        .stands(for: "loop_close.loop_close", "loop_close.loop_instant_close")
    )
    func endedInTheMiddle() {
        let trace = Trace()
        let (timer, block) = (Box<WeakTrace?>(nil), Box<WeakTrace?>(nil))
        TestThread {
            let loop = EventRunLoop.current
            let (byTimer, byBlock) = (Trace(), Trace())
            timer.value = WeakTrace(byTimer)
            block.value = WeakTrace(byBlock)
            loop.add(
                EventTimer(every: .milliseconds(2)) { _ in
                    trace.note(byTimer.all.isEmpty ? "first fire" : "another")
                    byTimer.note("fired")
                    loop.stop()
                }
            )
            loop.run(for: .seconds(60))
            loop.perform { byBlock.note("ran") }
        }.join()
        #expect(trace.all == ["first fire"])
        #expect(timer.value?.trace == nil && block.value?.trace == nil)
    }

    @Test(
        "R41: the loop's next fire date is that of its timer, while it has one",
        .stands(for: "loop_time.loop_backend_timeout")
    )
    func nextDate() async {
        let dates = await onLoopThread { loop in
            let before = loop.nextTimerFireDate()
            let date = MonotonicInstant.now.advanced(by: .milliseconds(5))
            loop.add(EventTimer(at: date) { _ in })
            let during = loop.nextTimerFireDate()
            loop.run(for: .seconds(60))
            return [before == nil, during == date, loop.nextTimerFireDate() == nil]
        }
        #expect(dates == [true, true, true])
    }
}
