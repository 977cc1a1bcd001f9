import LoopTestSupport
import RunLoopKit
import Testing

/// The cases of swift-corelibs-foundation's TestNotificationQueue. Posting now corresponds to a perform that waits;
/// posting as soon as possible or when idle corresponds to work before the loop sleeps.
@Suite(.timeLimit(.minutes(10)))
struct FoundationNotificationQueueTests {
    @Test(
        "R1: work given to one thread's loop is done on that thread, not on another",
        .stands(for: "TestNotificationQueue.test_defaultQueue")
    )
    func ownLoop() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.performBeforeWaiting("work") { trace.note("this loop: \(EventRunLoop.current === loop)") }
            TestThread {
                occupy(EventRunLoop.current)
                EventRunLoop.current.run(for: .milliseconds(1))
            }.join()
            trace.note("other loop has run")
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["other loop has run", "this loop: true"])
    }

    @Test(
        "R52: a perform-and-wait on the loop's own thread runs at once, each time",
        .stands(
            for: "TestNotificationQueue.test_postNowToDefaultQueueWithoutCoalescing",
            "TestNotificationQueue.test_postNowToDefaultQueueWithCoalescing"
        ),
        arguments: [1, 3]
    )
    func atOnce(times: Int) async {
        let performs = await onLoopThread { loop in
            let performs = Counter()
            for _ in 0..<times { try? loop.performAndWait { _ = performs.increment() } }
            return performs.value
        }
        #expect(performs == times)
    }

    @Test(
        "R52: in a run of the default mode only requests for that mode are served",
        .stands(for: "TestNotificationQueue.test_postNowForDefaultRunLoopMode")
    )
    func byMode() async {
        let (inDefault, inOther) = await onLoopThread { loop in
            let trace = Trace()
            occupy(loop)
            loop.add(
                EventTimer(after: .milliseconds(1)) { _ in
                    guard let mode = loop.currentMode else { return }
                    loop.performAsSource(in: [mode]) { trace.note("for \(mode)") }
                    loop.performAsSource { trace.note("for the common modes") }
                    loop.performAsSource(in: ["other"]) { trace.note("for another") }
                    loop.performAsSource(in: [mode]) { loop.stop() }
                }
            )
            loop.run(for: .seconds(60))
            let inDefault = trace.all
            loop.run(mode: "other", for: .zero)
            return (inDefault, trace.all.dropFirst(inDefault.count).map { $0 })
        }
        #expect(inDefault == ["for default", "for the common modes"])
        #expect(inOther == ["for another"])
    }

    @Test(
        "Work is done before the loop sleeps, once for all requests with its key",
        .stands(
            for: "TestNotificationQueue.test_postAsapToDefaultQueue",
            "TestNotificationQueue.test_postAsapToDefaultQueueWithCoalescingOnNameAndSender"
        ),
        arguments: [1, 3]
    )
    func asSoonAsPossible(times: Int) async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            for _ in 0..<times { loop.performBeforeWaiting("name") { trace.note("work") } }
            loop.add(EventTimer(after: .milliseconds(2)) { _ in trace.note("timer") })
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == ["work", "timer"])
    }

    @Test(
        "The key can be a name or a sender; of each key the last request is done",
        .stands(for: "TestNotificationQueue.test_postAsapToDefaultQueueWithCoalescingOnNameOrSender")
    )
    func byNameOrSender() async {
        let trace = await onLoopThread { loop in
            let (trace, sender) = (Trace(), Trace())
            occupy(loop)
            loop.performBeforeWaiting("name") { trace.note("1") }
            loop.performBeforeWaiting(ObjectIdentifier(sender)) { trace.note("2") }
            loop.performBeforeWaiting("name") { trace.note("3") }
            loop.performBeforeWaiting("name") { trace.note("4") }
            loop.performBeforeWaiting(ObjectIdentifier(sender)) { trace.note("5") }
            loop.run(for: .zero)
            return trace.all
        }
        #expect(trace == ["4", "5"])
    }

    @Test(
        "R15: work for an idle loop waits while sources are signalled, and is done when the loop is about to sleep",
        .stands(for: "TestNotificationQueue.test_postIdleToDefaultQueue")
    )
    func whenIdle() async {
        let trace = await onLoopThread { loop in
            let trace = Trace()
            loop.performBeforeWaiting("idle", at: .beforeWaiting) {
                trace.note("idle")
                loop.stop()
            }
            let source = EventSource { source in
                trace.note("busy")
                if trace.all.count < 3 { source.signal() }
            }
            loop.add(source)
            source.signal()
            loop.run(for: .seconds(60))
            return trace.all
        }
        #expect(trace == ["busy", "busy", "busy", "idle"])
    }

    @Test(
        "R2: work that is waiting when its thread ends is released without being done",
        .stands(for: "TestNotificationQueue.test_notificationQueueLifecycle")
    )
    func freedWithThread() {
        let (trace, witness) = (Trace(), Box<WeakTrace?>(nil))
        TestThread {
            let held = Trace()
            witness.value = WeakTrace(held)
            EventRunLoop.current.performBeforeWaiting("work") {
                held.note("")
                trace.note("done")
            }
        }.join()
        #expect(trace.all == [])
        #expect(witness.value != nil && witness.value?.trace == nil)
    }
}
