import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// R28 to R33: sources signalled by the program.
@Suite(.timeLimit(.minutes(10)))
struct SourceTests {
    @Test("R28: ready sources run by order, then by the time of their first signal")
    func order() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let make: (Int, String) -> EventSource = { order, name in
                let source = EventSource(order: order) { _ in trace.note(name) }
                loop.add(source)
                return source
            }
            let sources = [make(1, "last"), make(0, "a"), make(0, "b"), make(-1, "first"), make(0, "silent")]
            for index in [0, 2, 1, 2, 3] { sources[index].signal() }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["first", "b", "a", "last"])
    }

    @Test("R29: the signal is cleared before perform; a signal during perform counts for the next turn")
    func signalInPerform() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            observe(loop, in: trace)
            let source = EventSource { source in
                trace.note(source.isSignalled ? "signalled" : "cleared")
                source.signal()
                if trace.all.count > 4 { loop.stop() }
            }
            loop.add(source)
            source.signal()
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == ["entry", "timers", "sources", "cleared", "timers", "sources", "cleared", "exit"])
    }

    @Test("R30: with return-after-source one source is handled, and the rest stay signalled, in order")
    func returnAfterSource() async {
        let (results, trace) = await onLoopThread { loop in
            let trace = Trace()
            for name in ["a", "b", "c"] {
                let source = EventSource { _ in trace.note(name) }
                loop.add(source)
                source.signal()
            }
            let results = (0..<4).map { _ in loop.run(for: .zero, returnAfterSourceHandled: true) }
            return (results, trace.all)
        }
        #expect(results == [.handledSource, .handledSource, .handledSource, .timedOut])
        #expect(trace == ["a", "b", "c"])
    }

    @Test("R31: a source invalidated earlier in the pass is not performed; one that was only removed is")
    func invalidatedInPass() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let removed = EventSource(order: 1) { _ in trace.note("removed") }
            let invalid = EventSource(order: 1) { _ in trace.note("invalid") }
            let first = EventSource { _ in
                trace.note("first")
                loop.remove(removed)
                invalid.invalidate()
            }
            for source in [first, removed, invalid] {
                loop.add(source)
                source.signal()
            }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["first", "removed"])
    }

    @Test("R31: an invalid source that only the queue still holds is released outside all locks")
    func releasedByQueue() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let others = (0..<2).map { _ in EventSource { _ in } }
            func leaveInvalidSource() {
                let held = LoopUserInDeinit(of: loop, trace)
                let source = EventSource(onCancel: { _, _ in withExtendedLifetime(held) {} }) { _ in }
                for source in [source] + others {
                    loop.add(source)
                    source.signal()
                }
                source.invalidate()
            }
            leaveInvalidSource()
            trace.note("one of three is invalid")
            others[0].invalidate()
            trace.note("two of three are invalid")
            return trace.all
        }
        #expect(trace == ["one of three is invalid", "freed, modes: [\"default\"]", "two of three are invalid"])
    }

    @Test("R31: a source removed before the pass is not performed; its signal waits until it is added again")
    func removedBeforePass() async {
        let (before, after) = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            let source = EventSource { _ in trace.note("performed") }
            loop.add(source)
            source.signal()
            loop.remove(source)
            loop.run(for: .zero)
            let before = trace.all
            loop.add(source)
            loop.run(for: .zero)
            return (before, trace.all)
        }
        #expect(before == [])
        #expect(after == ["performed"])
    }

    @Test("R32: a source was handled if any in the pass was, even if the last was not")
    func handledIsOr() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let last = EventSource(order: 1) { _ in trace.note("last") }
            let first = EventSource { _ in
                trace.note("first")
                last.invalidate()
            }
            observe(loop, in: trace)
            loop.add(first)
            loop.add(last)
            first.signal()
            last.signal()
            loop.perform { loop.perform { loop.stop() } }
            loop.run(for: .seconds(60))
            return trace.all
        }
        // No "waiting": the turn polled, because a source had been handled.
        #expect(trace == ["entry", "timers", "sources", "first", "exit"])
    }

    @Test("R33: schedule and cancel are called once per loop and mode, by add, remove and invalidate")
    func notices() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let source = EventSource(
                onSchedule: { _, mode in trace.note("schedule \(mode)") },
                onCancel: { _, mode in trace.note("cancel \(mode)") },
                { _ in }
            )
            loop.add(source)
            loop.add(source)
            loop.add(source, to: "other")
            loop.remove(source)
            loop.remove(source)
            source.invalidate()
            source.invalidate()
            loop.add(source)
            return trace.all
        }
        #expect(trace == ["schedule default", "schedule other", "cancel default", "cancel other"])
    }

    @Test("R33: notices come outside locks: they may change the loop")
    func noticesMayCallBack() async {
        let found = await onLoopThread { loop in
            let other = EventSource { _ in }
            let source = EventSource(
                onSchedule: { loop, _ in loop.add(other, to: .common) },
                onCancel: { loop, _ in loop.remove(other, from: .common) },
                { _ in }
            )
            loop.add(source, to: .common)
            let added = loop.contains(other)
            source.invalidate()
            return [added, loop.contains(other)]
        }
        #expect(found == [true, false])
    }

    @Test(
        "A source on two loops is performed once per signal, by the first that reaches it, never by both at once"
    )
    func twoLoops() async {
        let count = 2_000
        let (performed, overlaps) = await onLoopThread { loop in
            let performed = Counter()
            let inside = Counter()
            let overlaps = Counter()
            let busy = Box(false)
            let source = EventSource { _ in
                if busy.value { overlaps.increment() }
                busy.value = true
                inside.increment()
                busy.value = false
                performed.increment()
            }
            loop.add(source)
            let otherLoop = Box<EventRunLoop?>(nil)
            let other = TestThread {
                otherLoop.value = .current
                EventRunLoop.current.add(source)
                EventRunLoop.current.run()
            }
            waitUntil { otherLoop.value?.isWaiting ?? false }
            let signaller = TestThread {
                for round in 1...count {
                    source.signalAndWake()
                    waitUntil { performed.value == round }
                }
                source.invalidate()
                loop.wakeUp()
                otherLoop.value?.wakeUp()
            }
            loop.run()
            signaller.join()
            other.join()
            return (performed.value, overlaps.value)
        }
        #expect(performed == count)
        #expect(overlaps == 0)
    }

    @Test("Invalidation frees what the callback retains")
    func freesClosure() {
        weak var witness: Trace?
        let source: EventSource
        do {
            let held = Trace()
            witness = held
            source = EventSource { _ in held.note("") }
        }
        #expect(witness != nil)
        source.invalidate()
        #expect(witness == nil)
    }
}
