import Glibc
import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of libuv's test-timer, test-timer-again and test-timer-from-check.
@Suite(.timeLimit(.minutes(10)))
struct LibuvTimerTests {
    @Test(
        "R41: the run outlasts ten one-shots, a repeating timer that ends itself, and one that was removed",
        .stands(for: "timer.timer")
    )
    func manyKinds() async {
        let (trace, result, time) = await onLoopThread { loop in
            let (trace, start) = (Trace(), MonotonicInstant.now)
            for index in 0..<10 {
                loop.add(EventTimer(at: start.advanced(by: .milliseconds(index * 5))) { _ in trace.note("once") })
            }
            let repeats = Counter()
            loop.add(
                EventTimer(every: .milliseconds(10)) { timer in
                    trace.note("repeating")
                    if repeats.increment() == 5 { timer.invalidate() }
                }
            )
            let never = EventTimer(every: .milliseconds(10)) { _ in trace.note("never") }
            loop.add(never)
            loop.remove(never)
            let result = loop.run(for: .seconds(60))
            return (trace.all, result, elapsed(since: start))
        }
        #expect(trace.filter { $0 == "once" }.count == 10)
        #expect(trace.filter { $0 == "repeating" }.count == 5)
        #expect(!trace.contains("never"))
        #expect(result == .finished)
        #expect(time >= .milliseconds(50))
    }

    @Test(
        "R27: a timer due in a day that is moved near fires once, at the second date",
        .stands(for: "timer.timer_start_twice")
    )
    func movedNear() async {
        let fires = await onLoopThread { loop in
            let fires = Counter()
            let timer = EventTimer(after: .seconds(86_400)) { _ in fires.increment() }
            loop.add(timer)
            timer.nextFireDate = .now.advanced(by: .milliseconds(5))
            loop.run(for: .seconds(60))
            return fires.value
        }
        #expect(fires == 1)
    }

    @Test(
        "R41: a timer that was only created is on no loop, and no loop waits for it",
        .stands(for: "timer.timer_init")
    )
    func onlyMade() async {
        let (contained, next, repeats) = await onLoopThread { loop in
            let timer = EventTimer(at: .now) { _ in }
            return (loop.contains(timer), loop.nextTimerFireDate(), timer.repeats)
        }
        #expect(!contained)
        #expect(next == nil)
        #expect(!repeats)
    }

    @Test(
        "R41: timers with one date fire in the order in which they were added, whichever was created first",
        .stands(for: "timer.timer_order"),
        arguments: [["a", "b"], ["b", "a"]]
    )
    func sameDate(added: [String]) async {
        let trace = await onLoopThread { loop in
            let (trace, date) = (Trace(), MonotonicInstant.now)
            let timers = ["a", "b"].map { name in (name, EventTimer(at: date) { _ in trace.note(name) }) }
            for name in added {
                for (other, timer) in timers where name == other { loop.add(timer) }
            }
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == added)
    }

    @Test(
        "R43: a timer that is due at once and adds another like it does not keep the pass going",
        .stands(for: "timer.timer_zero_timeout")
    )
    func noDelay() async {
        let (fires, results) = await onLoopThread { loop in
            let (fires, successor) = (Counter(), EventTimer(at: .now) { _ in })
            loop.add(
                EventTimer(at: .now) { _ in
                    fires.increment()
                    successor.nextFireDate = .now
                    loop.add(successor)
                    loop.stop()
                }
            )
            let first = loop.run(for: .seconds(60))
            let waits = successor.isValid
            successor.invalidate()
            return (fires.value, [first == .stopped, waits, loop.run(for: .seconds(60)) == .finished])
        }
        #expect(fires == 1)
        #expect(results == [true, true, true])
    }

    @Test(
        "R49: extreme delays are kept and do not fire before a small one",
        .stands(for: "timer.timer_huge_timeout")
    )
    func hugeDelay() async {
        let (trace, early, result) = await onLoopThread { loop in
            let trace = Trace()
            let huge = [Duration.milliseconds(0xffff_ffff_ffff), .nanoseconds(Int64.max), .seconds(Int64.max)]
                .map { delay in EventTimer(after: delay) { _ in trace.note("huge") } }
            for timer in huge { loop.add(timer) }
            let century = MonotonicInstant.now.advanced(by: .seconds(3_000_000_000))
            let early = huge.contains { $0.nextFireDate < century }
            loop.add(
                EventTimer(after: .milliseconds(1)) { _ in
                    trace.note("tiny")
                    for timer in huge { timer.invalidate() }
                }
            )
            let result = loop.run(for: .seconds(60))
            return (trace.all, early, result)
        }
        #expect(trace == ["tiny"])
        #expect(!early)
        #expect(result == .finished)
    }

    @Test(
        "R50: a timer with a huge interval fires once, while one with a small interval continues",
        .stands(for: "timer.timer_huge_repeat")
    )
    func hugeInterval() async {
        let trace = await onLoopThread { loop in
            let (trace, start) = (Trace(), MonotonicInstant.now)
            let huge = EventTimer(at: start, every: .seconds(Int64.max)) { _ in trace.note("huge") }
            loop.add(huge)
            loop.add(
                EventTimer(at: start.advanced(by: .milliseconds(1)), every: .milliseconds(1)) { timer in
                    trace.note("tiny")
                    guard trace.all.count == 10 else { return }
                    timer.invalidate()
                    huge.invalidate()
                }
            )
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == ["huge"] + Array(repeating: "tiny", count: 9))
    }
}
