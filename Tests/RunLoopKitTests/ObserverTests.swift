import LoopTestSupport
import RunLoopKit
import Testing

/// R38 to R40.
@Suite(.timeLimit(.minutes(10)))
struct ObserverTests {
    @Test("R38: observers are called by order, then by insertion, for the activities they name")
    func order() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            for (order, name) in [(1, "last"), (0, "a"), (0, "b"), (-1, "first")] {
                loop.add(LoopObserver(activities: .entry, order: order) { _, _ in trace.note(name) })
            }
            loop.add(LoopObserver(activities: [.exit]) { _, activity in trace.note(name(of: activity)) })
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["first", "a", "b", "last", "exit"])
    }

    @Test("R38: an observer belongs to one loop until it is removed from it")
    func oneLoop() async {
        let observer = LoopObserver { _, _ in }
        let (first, second) = await onLoopThread { loop in
            loop.add(observer)
            let added = Box(false)
            TestThread {
                EventRunLoop.current.add(observer)
                added.value = EventRunLoop.current.contains(observer)
            }.join()
            let whileTaken = added.value
            loop.remove(observer)
            TestThread {
                EventRunLoop.current.add(observer)
                added.value = EventRunLoop.current.contains(observer)
            }.join()
            return (whileTaken, added.value)
        }
        #expect(!first)
        #expect(second)
    }

    @Test("R39: an observer removed by an earlier one in the pass still fires; an invalidated one does not")
    func snapshot() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            let removed = LoopObserver(activities: .entry, order: 1) { _, _ in trace.note("removed") }
            let invalid = LoopObserver(activities: .entry, order: 1) { _, _ in trace.note("invalid") }
            let late = LoopObserver(activities: .entry, order: 1) { _, _ in trace.note("added in the pass") }
            loop.add(removed)
            loop.add(invalid)
            loop.add(
                LoopObserver(activities: .entry) { _, _ in
                    loop.remove(removed)
                    invalid.invalidate()
                    loop.add(late)
                }
            )
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["removed"])
    }

    @Test("R39: an observer whose callback runs the loop is not called in that run; the others are")
    func nested() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            let outer = LoopObserver(activities: .entry, order: 0) { _, _ in
                trace.note("begins")
                // Without the rule it would start again and again.
                if trace.all.count < 10 { loop.run(for: .zero) }
                trace.note("ends")
            }
            loop.add(outer)
            loop.add(LoopObserver(activities: .entry, order: 1) { _, _ in trace.note("other") })
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["begins", "other", "ends", "other"])
    }

    @Test("R40: an observer that does not repeat is invalid after its callback, and valid in it")
    func once() async {
        let (trace, valid) = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            let observer = LoopObserver(repeats: false) { observer, activity in
                trace.note("\(name(of: activity)), \(observer.isValid ? "valid" : "invalid")")
            }
            loop.add(observer)
            loop.run(for: .zero)
            return (trace.all, observer.isValid)
        }
        #expect(trace == ["entry, valid"])
        #expect(!valid)
    }
}
