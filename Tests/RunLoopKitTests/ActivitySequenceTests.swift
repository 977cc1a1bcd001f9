import LoopTestSupport
import RunLoopKit
import Testing

/// R38 to R40, as an asynchronous sequence.
@Suite(.timeLimit(.minutes(10)))
struct ActivitySequenceTests {
    @Test("R38: a sequence delivers the activities of one mode in order and ends with the loop's thread")
    func order() async {
        let stream = Box<AsyncStream<EventRunLoop.Activity>?>(nil)
        _ = await onLoopThread { loop in
            occupy(loop)
            occupy(loop, "other")
            stream.value = loop.activities([.entry, .beforeTimers, .beforeSources, .exit])
            loop.run(mode: "other", for: .zero)
            loop.run(for: .zero)
            return true
        }
        var told: [String] = []
        for await activity in stream.value ?? .finished { told.append(name(of: activity)) }
        #expect(told == ["entry", "timers", "sources", "exit"])
    }

    @Test("R38: a consumer that falls behind misses the oldest activities, and never delays the loop")
    func bounded() async {
        let stream = Box<AsyncStream<EventRunLoop.Activity>?>(nil)
        _ = await onLoopThread { loop in
            occupy(loop)
            stream.value = loop.activities([.beforeTimers, .exit], limit: 3)
            for _ in 0..<1000 { loop.run(for: .zero) }
            return true
        }
        var told: [String] = []
        for await activity in stream.value ?? .finished { told.append(name(of: activity)) }
        #expect(told == ["exit", "timers", "exit"])
    }

    @Test("R38: a consumer that is cancelled or released removes its observer from the loop")
    func cancelled() async {
        let worker = Worker()
        let begun = Counter()
        let loop = worker.loop
        let task = Task {
            for await _ in loop.activities(.beforeTimers) { begun.increment() }
        }
        while begun.value == 0 {
            loop.wakeUp()
            await Task.yield()
        }
        #expect(loop.description.contains("observer"))
        task.cancel()
        await task.value
        #expect(!loop.description.contains("observer"))

        for await _ in AsyncStream<Void>.once(loop.wakeUp) {
            var sequence: AsyncStream<EventRunLoop.Activity>? = loop.activities()
            #expect(loop.description.contains("observer"))
            _ = sequence?.makeAsyncIterator()
            sequence = nil
        }
        #expect(!loop.description.contains("observer"))
        worker.stop()
    }

    @Test("R3: a sequence of a loop whose thread has ended is over at once")
    func ended() async throws {
        let box = Box<EventRunLoop?>(nil)
        _ = await onLoopThread { loop in
            box.value = loop
            return true
        }
        let loop = try #require(box.value)
        for await _ in loop.activities() { Issue.record("an activity of an ended loop") }
    }
}

extension AsyncStream where Element == Void {
    /// One element, after an action.
    static func once(_ action: () -> Void) -> Self {
        action()
        return Self { continuation in
            continuation.yield()
            continuation.finish()
        }
    }
}

extension AsyncStream {
    static var finished: Self { Self { $0.finish() } }
}
