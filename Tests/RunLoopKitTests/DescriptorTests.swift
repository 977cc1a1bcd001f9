import Glibc
import LoopTestSupport
import RunLoopKit
import TestSupport
import Testing

/// R34 to R37.
@Suite(.timeLimit(.minutes(10)))
struct DescriptorTests {
    @Test("R34: a readable descriptor is delivered, level-triggered; the loop does not read from it")
    func levelTriggered() async throws {
        let pipe = try Pipe()
        pipe.write("abc")
        let (results, events, rest) = await onLoopThread { loop in
            let events = Box<[DescriptorSource.Events]>([])
            try? loop.add(DescriptorSource(descriptor: pipe.reader) { _, seen in events.value.append(seen) })
            let results = (0..<3).map { _ in loop.run(for: .seconds(60), returnAfterSourceHandled: true) }
            return (results, events.value, pipe.read())
        }
        #expect(results == [.handledSource, .handledSource, .handledSource])
        #expect(events == [.readable, .readable, .readable])
        #expect(rest == "abc")
    }

    @Test("R34: an edge-triggered source is delivered once for the present data, and again when more arrives")
    func edgeTriggered() async throws {
        let pipe = try Pipe()
        pipe.write("abc")
        let count = await onLoopThread { loop in
            let count = Counter()
            try? loop.add(
                DescriptorSource(descriptor: pipe.reader, edgeTriggered: true) { _, _ in
                    if count.increment() == 2 { loop.stop() }
                }
            )
            loop.run(for: .milliseconds(5))
            let first = count.value
            pipe.write("d")
            loop.run(for: .seconds(60))
            return (first, count.value)
        }
        #expect(count == (1, 2))
    }

    @Test("R34: writability and hang-up are distinguished")
    func kindsOfEvents() async throws {
        let pipe = try Pipe()
        let events = await onLoopThread { loop in
            let events = Box<[DescriptorSource.Events]>([])
            let writable = DescriptorSource(descriptor: pipe.writer, events: .writable) { source, seen in
                events.value.append(seen)
                source.invalidate()
            }
            try? loop.add(writable)
            loop.run(for: .zero)
            pipe.closeWriter()
            let hungUp = DescriptorSource(descriptor: pipe.reader, events: [.readable, .hangUp]) { source, seen in
                events.value.append(seen)
                source.invalidate()
            }
            try? loop.add(hungUp)
            // Not immediately: a process that another test starts holds a copy of the writer until it has executed its program.
            loop.run(for: .seconds(30), returnAfterSourceHandled: true)
            return events.value
        }
        #expect(events == [.writable, .hangUp])
    }

    @Test("R34: a descriptor wakes a sleeping loop, even if another thread added it meanwhile")
    func addedFromElsewhere() async throws {
        let pipe = try Pipe()
        let result = await onLoopThread { loop in
            occupy(loop)
            let other = TestThread {
                waitUntil { loop.isWaiting }
                try? loop.add(DescriptorSource(descriptor: pipe.reader) { _, _ in loop.stop() })
                pipe.write("x")
            }
            defer { other.join() }
            return loop.run(for: .seconds(60))
        }
        #expect(result == .stopped)
    }

    @Test("R34: watching an unsuitable descriptor is a typed error, and nothing is added")
    func refused() async throws {
        let file = try #require(openTemporaryFile())
        defer { close(file) }
        let codes = await onLoopThread { loop in
            [file, -1].map { (descriptor: Int32) -> RunLoopError.Code? in
                let source = DescriptorSource(descriptor: descriptor) { _, _ in }
                let code = refusal(of: source, by: loop, in: .common)
                return loop.contains(source) || loop.contains(source, in: .common) ? nil : code
            }
        }
        #expect(codes == [.descriptorNotPollable, .descriptorNotPollable])
    }

    @Test("A descriptor watched twice in one mode is a typed error")
    func watchedTwice() async throws {
        let pipe = try Pipe()
        let code = await onLoopThread { loop in
            try? loop.add(DescriptorSource(descriptor: pipe.reader) { _, _ in })
            return refusal(of: DescriptorSource(descriptor: pipe.reader) { _, _ in }, by: loop, in: .default)
        }
        #expect(code == .descriptorInUse)
    }

    @Test("Also in the first source's callout, after a nested run, a second source of a descriptor is refused")
    func watchedTwiceInsideCallout() async throws {
        let pipe = try Pipe()
        pipe.write("x")
        let (codes, events) = await onLoopThread { loop in
            let codes = Box<[RunLoopError.Code?]>([])
            let events = Box<[DescriptorSource.Events]>([])
            try? loop.add(
                DescriptorSource(descriptor: pipe.reader) { source, seen in
                    events.value.append(seen)
                    guard events.value.count == 1 else { return }
                    loop.run(for: .zero)
                    let second = DescriptorSource(descriptor: source.descriptor) { _, _ in }
                    codes.value.append(refusal(of: second, by: loop, in: .default))
                }
            )
            for _ in 0..<2 { loop.run(for: .seconds(60), returnAfterSourceHandled: true) }
            return (codes.value, events.value)
        }
        #expect(codes == [.descriptorInUse])
        #expect(events == [.readable, .readable])
    }

    @Test("R36: a hundred busy sources get equal shares of the turns")
    func roundRobin() async throws {
        // More than one harvest takes.
        let pipes = try (0..<100).map { _ in try Pipe() }
        let counts = await onLoopThread { loop in
            let counts = pipes.map { _ in Counter() }
            for (pipe, count) in zip(pipes, counts) {
                pipe.write("x")
                try? loop.add(
                    DescriptorSource(descriptor: pipe.reader) { _, _ in count.increment() }
                )
            }
            let turns = Counter()
            loop.add(LoopObserver(activities: .beforeTimers) { _, _ in if turns.increment() > 1000 { loop.stop() } })
            loop.run(for: .seconds(60))
            return counts.map(\.value)
        }
        let (least, most) = (counts.min() ?? 0, counts.max() ?? 0)
        #expect(
            least >= 9 && most <= 11,
            "each of 100 ready sources gets about a hundredth of 1000 turns: \(least) to \(most)"
        )
    }

    @Test("R36: an event whose data an earlier callout has read is not delivered")
    func checkedAgain() async throws {
        let pipes = try [Pipe(), Pipe()]
        let count = await onLoopThread { loop in
            let count = Counter()
            for pipe in pipes {
                pipe.write("x")
                try? loop.add(
                    DescriptorSource(descriptor: pipe.reader) { _, _ in
                        count.increment()
                        for pipe in pipes { _ = pipe.read() }
                    }
                )
            }
            loop.run(for: .milliseconds(5))
            return count.value
        }
        #expect(count == 1)
    }

    @Test("R36: an edge is delivered even if an earlier callout has read its data: it is delivered only once")
    func edgeIsNotDropped() async throws {
        let pipes = try [Pipe(), Pipe()]
        let told = await onLoopThread { loop in
            let told = Box<[Int]>([])
            for (number, pipe) in pipes.enumerated() {
                pipe.write("x")
                try? loop.add(
                    DescriptorSource(descriptor: pipe.reader, edgeTriggered: true) { _, _ in
                        told.value.append(number)
                        for pipe in pipes { _ = pipe.read() }
                    }
                )
            }
            // Both edges are in the first harvest; the remaining one is delivered without a wait.
            while loop.run(for: .zero, returnAfterSourceHandled: true) == .handledSource {}
            return told.value
        }
        #expect(told.sorted() == [0, 1])
    }

    @Test("R36: a busy descriptor does not delay timers, nor do due timers starve a descriptor")
    func noStarvation() async throws {
        let pipe = try Pipe()
        pipe.write("x")
        let (descriptor, timer) = await onLoopThread { loop in
            let (descriptor, timer) = (Counter(), Counter())
            try? loop.add(DescriptorSource(descriptor: pipe.reader) { _, _ in descriptor.increment() })
            loop.add(
                EventTimer(at: .now, every: .nanoseconds(1)) { _ in
                    if timer.increment() == 1000 { loop.stop() }
                }
            )
            loop.run(for: .seconds(60))
            return (descriptor.value, timer.value)
        }
        #expect(timer == 1000)
        #expect(descriptor >= 999)
    }

    @Test("R23: a nested run does not enter a descriptor source in its callout, and does not spin on it")
    func nestedRun() async throws {
        let pipe = try Pipe()
        let (events, turns) = await runNested(in: pipe)
        #expect(events == [.readable, .readable], "it is watched again afterwards")
        #expect(turns < 10, "a level-triggered descriptor that nobody reads must not turn the nested run")
    }

    @Test("R23, R37: a source in its callout is not taken for closed by a nested run that finds it in a queue")
    func queuedInsideCallout() async throws {
        let (pipe, ahead) = (try Pipe(), try Pipe())
        pipe.write("x")
        let (events, calls, valid) = await onLoopThread { loop in
            let events = Box(DescriptorSource.Events())
            let (calls, callsBefore, callsAhead) = (Counter(), Box(0), Counter())
            let source = DescriptorSource(descriptor: pipe.reader) { _, seen in
                events.value.formUnion(seen)
                guard calls.increment() == 32 else { return }
                // Here it is ready again, and leaves the sets of both modes until this call ends.
                loop.run(mode: "b", for: .zero)
                // Here it is still in the queue. This is the delivery with which the loop checks the descriptor.
                loop.run(mode: "a", for: .zero)
            }
            @Sendable func deliver(in mode: EventRunLoop.Mode) {
                loop.run(mode: mode, for: .seconds(60), returnAfterSourceHandled: true)
            }
            try? loop.add(source, to: "a")
            for _ in 0..<31 { deliver(in: "a") }
            try? loop.add(source, to: "b")
            // The other source is harvested alone, and so comes first in the next harvest.
            _ = pipe.read()
            ahead.write("x")
            let first = DescriptorSource(descriptor: ahead.reader) { _, _ in
                guard callsAhead.increment() == 2 else { return }
                callsBefore.value = calls.value
                deliver(in: "b")
            }
            try? loop.add(first, to: "a")
            deliver(in: "a")
            pipe.write("x")
            // Both sources take turns.
            for _ in 0..<4 { deliver(in: "a") }
            return (events.value, (before: callsBefore.value, all: calls.value), source.isValid)
        }
        #expect(calls.before == 31, "the source waits in the queue while the first one's callout runs")
        #expect(calls.all > 31, "the call in which the nested runs find it has been made")
        #expect(events == .readable)
        #expect(valid)
    }

    @Test("R23, R37: a descriptor closed in its callout, with a duplicate alive, does not keep a nested run busy")
    func closedInCallout() async throws {
        let pipe = try Pipe()
        // Keeps the registration alive in the kernel after the close.
        let duplicate = dup(pipe.reader)
        defer { close(duplicate) }
        let (events, turns) = await runNested(in: pipe) { pipe.closeReader() }
        #expect(events == [.readable, .closed], "the source is told after its callout")
        #expect(turns < 10, "the nested run sleeps")
    }

    /// Runs a loop that watches a readable pipe, and runs it again inside the first callout.
    ///
    /// - Parameter before: What the callout does before that.
    /// - Returns: The source's events until the second one, and the number of turns of the nested run.
    private func runNested(
        in pipe: Pipe,
        _ before: @escaping @Sendable () -> Void = {}
    ) async -> ([DescriptorSource.Events], Int) {
        pipe.write("x")
        return await onLoopThread { loop in
            let (events, turns) = (Box<[DescriptorSource.Events]>([]), Counter())
            try? loop.add(
                DescriptorSource(descriptor: pipe.reader) { _, seen in
                    events.value.append(seen)
                    guard events.value.count == 1 else { return loop.stop() }
                    before()
                    let observer = LoopObserver(activities: .beforeTimers) { _, _ in turns.increment() }
                    loop.add(observer)
                    loop.run(for: .milliseconds(20))
                    observer.invalidate()
                }
            )
            loop.run(for: .seconds(60))
            return (events.value, turns.value)
        }
    }

    @Test("R23, R37: a loop that sleeps is told of a descriptor that another loop's callout has closed")
    func closedInCalloutElsewhere() async throws {
        let pipe = try Pipe()
        pipe.write("x")
        let events = await onLoopThread { loop in
            let events = Box<[DescriptorSource.Events]>([])
            let (sleeper, thread) = (Box<EventRunLoop?>(nil), Box<TestThread?>(nil))
            let source = DescriptorSource(descriptor: pipe.reader) { source, seen in
                events.value.append(seen)
                guard events.value.count == 1 else { return EventRunLoop.current.stop() }
                thread.value = TestThread {
                    let other = EventRunLoop.current
                    try? other.add(source)
                    // Here it is ready, too, and leaves the set until the first loop's call ends.
                    other.run(for: .zero)
                    sleeper.value = other
                    // Without a timeout: at its end it would find the source.
                    other.run()
                }
                waitUntil { sleeper.value?.isWaiting == true }
                pipe.closeReader()
            }
            try? loop.add(source)
            loop.run(for: .seconds(60), returnAfterSourceHandled: true)
            waitUntil { events.value.count == 2 }
            sleeper.value?.stop()
            thread.value?.join()
            return events.value
        }
        #expect(events == [.readable, .closed])
    }

    @Test("R23, R37: a descriptor that has become another file's, when a callout that has run the loop ends, is closed")
    func replacedInCallout() async throws {
        let (pipe, other) = (try Pipe(), try Pipe())
        pipe.write("x")
        other.write("x")
        let events = await onLoopThread { loop in
            let events = Box<[DescriptorSource.Events]>([])
            try? loop.add(
                DescriptorSource(descriptor: pipe.reader) { _, seen in
                    events.value.append(seen)
                    guard events.value.count == 1 else { return loop.stop() }
                    // Here it is ready again, and leaves the set until this call ends.
                    loop.run(for: .zero)
                    dup2(other.reader, pipe.reader)
                }
            )
            loop.run(for: .seconds(60))
            return events.value
        }
        #expect(events == [.readable, .closed])
    }

    @Test(
        "R37: closing a descriptor under its source, with a duplicate alive, gives a closed event; others continue"
    )
    func closedUnderSource() async throws {
        let (pipe, other) = (try Pipe(), try Pipe())
        pipe.write("x")
        let (last, valid, turns, otherIsServed) = await onLoopThread { loop in
            let last = Box(DescriptorSource.Events())
            let turns = Counter()
            // Keeps the registration alive in the kernel after the close.
            let duplicate = dup(pipe.reader)
            let source = DescriptorSource(descriptor: pipe.reader) { source, events in
                last.value = events
                turns.increment()
                if turns.value == 1 { pipe.closeReader() }
                if events.contains(.closed) { loop.stop() }
            }
            try? loop.add(source)
            let served = Counter()
            try? loop.add(
                DescriptorSource(descriptor: other.reader) { _, _ in
                    served.increment()
                    loop.stop()
                }
            )
            loop.run(for: .seconds(60))
            let turnsAtEnd = Counter()
            loop.add(LoopObserver(activities: .beforeTimers) { _, _ in turnsAtEnd.increment() })
            loop.run(for: .milliseconds(20))
            other.write("x")
            loop.run(for: .seconds(60))
            close(duplicate)
            return (last.value, source.isValid, turnsAtEnd.value, served.value)
        }
        #expect(last.contains(.closed))
        #expect(!valid)
        #expect(turns < 10, "the loop sleeps again")
        #expect(otherIsServed == 1)
    }

    @Test(
        "R37: removing a source after its descriptor was closed, with a duplicate alive, leaves no spinning loop"
    )
    func removedAfterClose() async throws {
        let (pipe, other) = (try Pipe(), try Pipe())
        let (turns, processorTime) = await onLoopThread { loop in
            let duplicate = dup(pipe.reader)
            defer { close(duplicate) }
            let source = DescriptorSource(descriptor: pipe.reader) { _, _ in }
            try? loop.add(source)
            try? loop.add(DescriptorSource(descriptor: other.reader) { _, _ in })
            loop.run(for: .zero)
            pipe.closeReader()
            source.invalidate()
            // The kernel still watches the duplicate, although no source does.
            pipe.write("x")
            let turns = Counter()
            loop.add(LoopObserver(activities: .beforeTimers) { _, _ in turns.increment() })
            let before = processorTimeOfThread()
            loop.run(for: .milliseconds(300))
            return (turns.value, processorTimeOfThread() - before)
        }
        #expect(turns < 10)
        // A loop whose wait returns immediately and starts again makes no turns, but uses CPU time for all 300 ms.
        #expect(processorTime < 20_000_000)
    }

    @Test("R37: watching a closed descriptor's number again, with a duplicate alive, leaves no spinning loop")
    func numberReusedBesideDuplicate() async throws {
        let (pipe, other) = (try Pipe(), try Pipe())
        let (events, processorTime) = await onLoopThread { loop in
            let duplicate = dup(pipe.reader)
            defer { close(duplicate) }
            let events = Box<[DescriptorSource.Events]>([])
            let number = pipe.reader
            try? loop.add(DescriptorSource(descriptor: number) { _, seen in events.value.append(seen) })
            dup2(other.reader, number)
            try? loop.add(DescriptorSource(descriptor: number) { _, _ in })
            loop.run(for: .zero)
            // The kernel still watches the duplicate, although no source does.
            pipe.write("x")
            let before = processorTimeOfThread()
            loop.run(for: .milliseconds(300))
            return (events.value, processorTimeOfThread() - before)
        }
        #expect(events == [.closed])
        #expect(processorTime < 20_000_000)
    }

    @Test("R37: a source whose descriptor was closed and whose number is watched again gets the event closed")
    func numberReused() async throws {
        let pipe = try Pipe()
        let (events, newIsServed) = await onLoopThread { loop in
            let events = Box<[DescriptorSource.Events]>([])
            let number = pipe.reader
            try? loop.add(DescriptorSource(descriptor: number) { _, seen in events.value.append(seen) })
            // The new pipe takes over the number in one step, because other tests open descriptors at the same time.
            guard let second = try? Pipe(), dup2(second.reader, number) == number else { return (events.value, false) }
            second.write("x")
            let served = Box(false)
            try? loop.add(
                DescriptorSource(descriptor: number) { _, _ in
                    served.value = true
                    loop.stop()
                }
            )
            loop.run(for: .seconds(60))
            loop.run(for: .milliseconds(1))
            return (events.value, served.value)
        }
        #expect(events == [.closed])
        #expect(newIsServed)
    }
}

/// The error with which the loop refuses the source; nil if it accepts it.
private func refusal(
    of source: DescriptorSource,
    by loop: EventRunLoop,
    in mode: EventRunLoop.Mode
) -> RunLoopError.Code? {
    do throws(RunLoopError) {
        try loop.add(source, to: mode)
        return nil
    } catch {
        return error.code
    }
}

/// A function that the C library's module lacks. It works in one step, so that no child of another test inherits the
/// ends.
@_silgen_name("pipe2")
private func pipe2(_ ends: UnsafeMutablePointer<Int32>, _ flags: Int32) -> Int32

/// A pipe that does not block.
final class Pipe: Sendable {
    let reader: Int32
    let writer: Int32
    private let isOpen = Box((reader: true, writer: true))

    struct Failure: Error {}

    init() throws {
        var ends: [Int32] = [-1, -1]
        guard unsafe pipe2(&ends, O_NONBLOCK | O_CLOEXEC) == 0 else { throw Failure() }
        (reader, writer) = (ends[0], ends[1])
    }

    deinit {
        closeReader()
        closeWriter()
    }

    func write(_ text: String) { _ = unsafe Glibc.write(writer, text, text.utf8.count) }

    func read() -> String {
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = unsafe Glibc.read(reader, &bytes, bytes.count)
        return String(decoding: bytes.prefix(max(0, count)), as: UTF8.self)
    }

    func closeReader() {
        if isOpen.value.reader { close(reader) }
        isOpen.value.reader = false
    }

    func closeWriter() {
        if isOpen.value.writer { close(writer) }
        isOpen.value.writer = false
    }
}

private func openTemporaryFile() -> Int32? {
    var path = Array("/tmp/run-loop-XXXXXX".utf8CString)
    let file = unsafe mkstemp(&path)
    guard file >= 0 else { return nil }
    unsafe unlink(path)
    return file
}

/// The CPU time that the calling thread has used, in nanoseconds.
private func processorTimeOfThread() -> Int {
    var time = timespec()
    unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return time.tv_sec * 1_000_000_000 + time.tv_nsec
}
