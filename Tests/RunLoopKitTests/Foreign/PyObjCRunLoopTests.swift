import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of PyObjC's test_cfrunloop.
@Suite(.timeLimit(.minutes(10)))
struct PyObjCRunLoopTests {
    @Test(
        "R14, R17: results and activities have the platform's numbers",
        .stands(for: "PyObjC TestRunLoop.testConstants")
    )
    func numbers() {
        let results: [EventRunLoop.RunResult] = [.finished, .stopped, .timedOut, .handledSource]
        #expect(results.map(\.rawValue) == [1, 2, 3, 4])
        let activities: [EventRunLoop.Activity] = [
            .entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting, .exit,
        ]
        #expect(activities.map(\.rawValue) == [1, 2, 4, 32, 64, 128])
        #expect(EventRunLoop.Activity(rawValue: 0x0FFF_FFFF).isSuperset(of: .all))
    }

    @Test(
        "R4, R11: a loop lists its modes, including one made common; a mode without items is finished at once",
        .stands(for: "PyObjC TestRunLoop.testRunloop")
    )
    func inspection() async {
        let (modes, next, isWaiting, result) = await onLoopThread { loop in
            loop.addCommonMode("late")
            loop.wakeUp()
            loop.stop()
            return (
                loop.modes, loop.nextTimerFireDate(in: "nowhere"), loop.isWaiting,
                loop.run(mode: "nowhere", for: .seconds(60), returnAfterSourceHandled: true)
            )
        }
        #expect(modes == [.default, "late"])
        #expect(next == nil)
        #expect(!isWaiting)
        #expect(result == .finished)
    }

    @Test(
        "R38: an observer keeps its initial properties, and sees only the activities it names",
        .stands(for: "PyObjC TestRunLoop.testObserver")
    )
    func observer() async {
        let (trace, contained, isValid) = await onLoopThread { loop in
            let trace = Trace()
            let observer = LoopObserver(activities: [.entry, .exit], order: 4) { observer, activity in
                trace.note("\(name(of: activity)) order \(observer.order) repeats \(observer.repeats)")
            }
            var contained = [loop.contains(observer, in: "custom")]
            loop.add(observer, to: "custom")
            contained.append(loop.contains(observer, in: "custom"))
            occupy(loop, "custom").signal()
            loop.run(mode: "custom", for: .seconds(60), returnAfterSourceHandled: true)
            loop.remove(observer, from: "custom")
            contained.append(loop.contains(observer, in: "custom"))
            var isValid = [observer.isValid]
            observer.invalidate()
            isValid.append(observer.isValid)
            return (trace.all, contained, isValid)
        }
        #expect(trace == ["entry order 4 repeats true", "exit order 4 repeats true"])
        #expect(contained == [false, true, false])
        #expect(isValid == [true, false])
    }

    @Test(
        "R41: a timer's date can be moved before it is added; one in the past fires at once, then on its grid",
        .stands(for: "PyObjC TestRunLoop.testTimer")
    )
    func timer() async {
        let (moved, fires, contained) = await onLoopThread { loop in
            let start = MonotonicInstant.now
            let idle = EventTimer(at: start, every: .milliseconds(2)) { _ in }
            idle.nextFireDate = idle.nextFireDate.advanced(by: .seconds(2))
            let fires = Counter()
            let timer = EventTimer(at: start, every: .milliseconds(2)) { _ in
                if fires.increment() == 3 { loop.stop() }
            }
            var contained = [loop.contains(timer, in: "custom")]
            loop.add(timer, to: "custom")
            contained.append(loop.contains(timer, in: "custom"))
            loop.run(mode: "custom", for: .seconds(60))
            timer.invalidate()
            loop.remove(timer, from: "custom")
            contained.append(loop.contains(timer, in: "custom"))
            return (start.duration(to: idle.nextFireDate), fires.value, contained)
        }
        #expect(moved == .seconds(2))
        #expect(fires == 3)
        #expect(contained == [false, true, false])
    }

    @Test(
        "R33: a source is notified of loop and mode when added and removed, and performed only when signalled",
        .stands(for: "PyObjC TestRunLoop.testSource")
    )
    func source() async {
        let (trace, order) = await onLoopThread { loop in
            let trace = Trace()
            let source = EventSource(
                order: 55,
                onSchedule: { trace.note("schedule \($1), this loop: \($0 === loop)") },
                onCancel: { trace.note("cancel \($1), this loop: \($0 === loop)") },
                { _ in trace.note("perform") }
            )
            loop.add(source, to: "custom")
            trace.note("\(loop.run(mode: "custom", for: .milliseconds(2), returnAfterSourceHandled: true))")
            source.signal()
            trace.note("\(loop.run(mode: "custom", for: .seconds(60), returnAfterSourceHandled: true))")
            loop.remove(source, from: "custom")
            trace.note("contained: \(loop.contains(source, in: "custom")), valid: \(source.isValid)")
            return (trace.all, source.order)
        }
        #expect(order == 55)
        #expect(
            trace == [
                "schedule custom, this loop: true", "timedOut", "perform", "handledSource",
                "cancel custom, this loop: true", "contained: false, valid: true",
            ]
        )
    }

    @Test(
        "R20: a mode that holds only a block runs the block",
        .stands(for: "PyObjC TestRunLoop.testFunctions10_6")
    )
    func block() async {
        let ran = await onLoopThread { loop in
            let ran = Counter()
            loop.perform { ran.increment() }
            loop.run(for: .zero, returnAfterSourceHandled: true)
            return ran.value
        }
        #expect(ran == 1)
    }

    @Test(
        "R40: a non-repeating observer of all activities sees one; a one-shot's callback gets the timer itself",
        .stands(for: "PyObjC TestRunLoop.testFunctions10_7")
    )
    func handlers() async {
        let (seen, isSame) = await onLoopThread { loop in
            let (seen, passed) = (Trace(), Box<EventTimer?>(nil))
            loop.add(LoopObserver(repeats: false) { _, activity in seen.note(name(of: activity)) })
            let timer = EventTimer(after: .milliseconds(5)) { passed.value = $0 }
            loop.add(timer)
            loop.run(for: .seconds(60), returnAfterSourceHandled: true)
            return (seen.all, passed.value === timer)
        }
        #expect(seen == ["entry"])
        #expect(isSame)
    }
}
