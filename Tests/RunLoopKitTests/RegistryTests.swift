import Glibc
import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// R1 to R3.
@Suite(.timeLimit(.minutes(10)))
struct RegistryTests {
    @Test("R1: a thread always has the same loop, and another thread another one")
    func onePerThread() async {
        let same = await onLoopThread { loop in
            let other = Box<EventRunLoop?>(nil)
            TestThread { other.value = .current }.join()
            return [loop === EventRunLoop.current, other.value === loop, EventRunLoop.main === loop]
        }
        #expect(same == [true, false, false])
    }

    @Test("R1: the main loop is available from any thread and is the same everywhere")
    func mainFromAnywhere() async {
        let main = await onLoopThread { _ in EventRunLoop.main }
        #expect(main === EventRunLoop.main)
        #expect(main.label == "main")
        #expect(main.thread?.id == getpid())
    }

    @Test("R1: in every callback, block and request the current loop is the caller")
    func currentInCallbacks() async throws {
        let pipe = try Pipe()
        let trace = await onLoopThread { loop in
            let trace = Trace()
            let note: @Sendable (String) -> Void = { [weak loop] in
                trace.note("\($0): \(EventRunLoop.current === loop)")
            }
            let source = EventSource { _ in note("source") }
            loop.add(source)
            source.signal()
            try? loop.add(
                DescriptorSource(descriptor: pipe.reader) { source, _ in
                    source.invalidate()
                    note("descriptor")
                }
            )
            loop.add(LoopObserver(activities: .entry) { _, _ in note("observer") })
            loop.add(EventTimer(after: .zero) { _ in note("timer") })
            loop.perform { note("block") }
            loop.performAsSource { note("request") }
            loop.perform(after: .zero) { note("delayed") }
            loop.performBeforeWaiting("key") { note("before waiting") }
            pipe.write("x")
            for _ in 0..<4 { loop.run(for: .zero) }
            return Set(trace.all)
        }
        let kinds = ["source", "descriptor", "observer", "timer", "block", "request", "delayed", "before waiting"]
        #expect(trace == Set(kinds.map { "\($0): true" }))
    }

    @Test("A loop knows its thread's id, name and stack, and forgets the thread when it ends")
    func threadFacts() async {
        let loop = Box<EventRunLoop?>(nil)
        TestThread(name: "worker-7") {
            var here = 0
            let address = unsafe withUnsafePointer(to: &here) { UInt(bitPattern: $0) }
            let current = EventRunLoop.current
            loop.value = current
            #expect(current.label == "worker-7")
            #expect(current.thread?.stack.contains(address) == true)
            #expect(current.thread.map { $0.id != getpid() } == true)
        }.join()
        #expect(loop.value?.thread == nil)
        #expect(loop.value?.label == "worker-7")
        #expect(loop.value?.heartbeat.hasEnded == true)
    }

    @Test("R2: when a thread ends, its loop cancels its sources and releases everything")
    func endOfThread() {
        let trace = Trace()
        let source = EventSource(
            onCancel: { loop, mode in trace.note("cancel \(mode), current: \(loop === EventRunLoop.current)") },
            { _ in }
        )
        let timer = EventTimer(after: .seconds(60)) { _ in }
        let observer = LoopObserver { _, _ in }
        weak var ended: EventRunLoop?
        let address = Box<WeakLoop?>(nil)
        TestThread {
            let loop = EventRunLoop.current
            address.value = WeakLoop(loop)
            loop.add(source)
            loop.add(source, to: "other")
            loop.add(timer, to: .common)
            loop.add(observer)
            loop.run(for: .zero)
        }.join()
        ended = address.value?.loop
        #expect(trace.all.sorted() == ["cancel default, current: true", "cancel other, current: true"])
        #expect(ended == nil)
    }

    @Test("R2: 500 threads with loops that have slept leave the number of descriptors unchanged")
    func noDescriptorLeaks() throws {
        #expect(try Fixture.run("RunLoopFixture", "threads").lines == ["left behind: 0"])
    }

    @Test("R3: a loop whose thread has ended accepts nothing, and nothing crashes")
    func afterTheEnd() throws {
        let box = Box<EventRunLoop?>(nil)
        TestThread { box.value = .current }.join()
        let loop = try #require(box.value)
        let source = EventSource { _ in }
        let timer = EventTimer(after: .seconds(1)) { _ in }
        loop.add(source)
        loop.add(timer, to: .common)
        loop.perform { Issue.record("a block ran on an ended loop") }
        loop.perform(in: "block") {}
        loop.performAsSource(in: ["request"]) {}
        loop.addCommonMode("common mode")
        loop.wakeUp()
        loop.stop()
        source.signalAndWake()
        #expect(!loop.contains(source))
        #expect(!loop.contains(timer, in: .common))
        #expect(throws: RunLoopError.self) {
            try loop.add(DescriptorSource(descriptor: 0) { _, _ in })
        }
        #expect(loop.currentMode == nil)
        #expect(loop.modes == [.default] && loop.commonModes == [.default])
    }

    @Test("R3: calls from another thread while the loop's thread ends, and after its end, do no harm")
    func endUnderFire() async {
        for _ in 0..<200 {
            let box = Box<EventRunLoop?>(nil)
            let source = EventSource { _ in }
            let (done, rounds) = (Box(false), Counter())
            let caller = TestThread {
                while !done.value {
                    guard let loop = box.value else { continue }
                    loop.add(source, to: .common)
                    loop.add(EventTimer(at: .now) { _ in })
                    source.signalAndWake()
                    loop.perform {}
                    loop.remove(source, from: .common)
                    rounds.increment()
                }
            }
            TestThread {
                box.value = .current
                EventRunLoop.current.run(for: .milliseconds(1))
            }.join()
            // The round that the end met, and a whole one after it.
            let before = rounds.value
            waitUntil { rounds.value >= before + 2 }
            done.value = true
            caller.join()
        }
    }
}

struct WeakLoop: Sendable {
    weak let loop: EventRunLoop?
    init(_ loop: EventRunLoop) { self.loop = loop }
}
