import Glibc
import LoopTestSupport
import Synchronization
import TestSupport
import Testing

@testable import RunLoopKit

/// Turn durations, as counted by the loop's own thread.
@Suite(.timeLimit(.minutes(10)))
struct TurnTallyTests {
    private let heartbeat = LoopHeartbeat()
    private let watcher = SilentWatcher()

    private func turn(_ phases: [LoopPhase]) { for phase in phases { heartbeat.publish(phase) } }

    private func pause(_ milliseconds: Int) {
        var time = timespec(tv_sec: 0, tv_nsec: milliseconds * 1_000_000)
        unsafe nanosleep(&time, nil)
    }

    @Test("Each length is counted in a bucket that is at most an eighth too long, or 64 ns")
    func buckets() {
        typealias Buckets = TurnHistogram.Buckets
        for length: UInt64 in [0, 1, 63, 64, 65, 511, 512, 513, 1_000, 4_095, 4_096, 250_000_000, 63_999_999_999] {
            let bound = Buckets.upperBound(of: Buckets.index(of: length))
            #expect(bound >= length && bound <= max(length + length / 8, length + 64), "\(length): \(bound)")
        }
        for index in 1..<Buckets.count - 1 {
            #expect(Buckets.index(of: Buckets.upperBound(of: index)) == index)
            #expect(Buckets.index(of: Buckets.upperBound(of: index - 1) + 1) == index)
        }
        #expect(Buckets.index(of: .max) == Buckets.count - 1)
    }

    @Test("Median and 99th percentile come from the counts, and never exceed the longest turn")
    func percentiles() {
        var counts = [UInt64](repeating: 0, count: TurnHistogram.Buckets.count)
        counts[TurnHistogram.Buckets.index(of: 1_000)] = 980
        counts[TurnHistogram.Buckets.index(of: 90_000_000)] = 20
        let histogram = TurnHistogram(counts: counts, longest: 90_000_001)
        #expect(histogram.count == 1_000)
        #expect((1_000...1_125).contains(histogram.length(ofShare: 0.5)))
        #expect(histogram.length(ofShare: 0.98) < 2_000)
        #expect(histogram.length(ofShare: .nan) == histogram.length(ofShare: 0))
        #expect(histogram.length(ofShare: .infinity) == histogram.length(ofShare: 1))
        #expect((90_000_000...90_000_001).contains(histogram.length(ofShare: 0.99)))
        #expect((histogram + histogram).count == 2_000 && (histogram + TurnHistogram()) == histogram)
        let shorter = TurnHistogram(counts: counts, longest: 90_000_000)
        #expect([histogram + shorter, shorter + histogram].map(\.longest) == [90_000_001, 90_000_001])
        #expect(TurnHistogram().length(ofShare: 0.5) == 0)
    }

    @Test("Unwatched turns are not counted; a watched turn counts from its departure to the next rest")
    func sleepingTurns() {
        turn([.entry, .beforeTimers, .beforeSources, .beforeWaiting, .waiting])
        #expect(heartbeat.turnHistogram.count == 0)
        _ = heartbeat.attach(watcher)
        for _ in 0..<3 {
            turn([.afterWaiting])
            pause(2)
            turn([.beforeTimers, .beforeSources, .beforeWaiting, .waiting])
        }
        #expect(heartbeat.turnHistogram.count == 3)
        #expect(heartbeat.turnHistogram.length(ofShare: 0) >= 2_000_000)
        #expect(heartbeat.turnHistogram.longest >= 2_000_000 && heartbeat.busySince == 0)
    }

    @Test("A turn without a rest before it is counted separately, so a polling loop has many turns")
    func pollingTurns() {
        _ = heartbeat.attach(watcher)
        turn([.entry])
        let departure = heartbeat.busySince
        turn([.beforeTimers, .beforeSources])
        #expect(heartbeat.busySince == departure && departure > 0)
        for _ in 0..<9 {
            // Not every clock ticks between two turns.
            waitUntil { MonotonicInstant.now.nanoseconds > heartbeat.busySince }
            turn([.beforeTimers, .beforeSources])
        }
        #expect(heartbeat.turnHistogram.count == 9 && heartbeat.busySince > departure)
        turn([.exit, .idle])
        #expect(heartbeat.turnHistogram.count == 10)
    }

    @Test("The turn in which a watcher is attached is not counted, and a new watcher starts with empty counts")
    func freshWatcher() {
        turn([.afterWaiting])
        _ = heartbeat.attach(watcher)
        turn([.beforeWaiting, .waiting])
        #expect(heartbeat.turnHistogram.count == 0)
        turn([.afterWaiting, .waiting])
        #expect(heartbeat.turnHistogram.count == 1)
        heartbeat.detach()
        turn([.afterWaiting, .waiting])
        _ = heartbeat.attach(SilentWatcher())
        #expect(heartbeat.turnHistogram.count == 0 && heartbeat.busySince == 0)
        turn([.afterWaiting])
        #expect(heartbeat.turnHistogram.count == 0)
        turn([.waiting])
        #expect(heartbeat.turnHistogram.count == 1)
    }

    @Test("Long turns are recorded with their times, each once; of many, the latest five")
    func longTurns() {
        _ = heartbeat.attach(watcher)
        heartbeat.keepTurns(longerThan: .milliseconds(1))
        let start = MonotonicInstant.now
        turn([.afterWaiting, .waiting])
        let before = MonotonicInstant.now
        // It is a long one, too, if this thread got no processor meanwhile.
        let isShort = start.duration(to: before) < .milliseconds(1)
        for _ in 0..<7 {
            turn([.afterWaiting])
            pause(2)
            turn([.waiting])
        }
        let (turns, next) = heartbeat.longTurns(from: 0)
        #expect(turns.count == 5 && (next == 7 || !isShort && next == 8))
        #expect(turns.allSatisfy { $0.start >= before && $0.start.duration(to: $0.end) >= .milliseconds(2) })
        #expect(zip(turns, turns.dropFirst()).allSatisfy { $0.end <= $1.start })
        #expect(heartbeat.longTurns(from: next).turns.isEmpty)
    }

    @Test("A callout is counted, and stamps a requested transition")
    func callouts() {
        _ = heartbeat.attach(watcher)
        turn([.afterWaiting])
        #expect(heartbeat.calloutsAtTurnStamp == 0)
        heartbeat.noteCallout()
        #expect(heartbeat.takeTransitionStamp() == nil)
        heartbeat.requestTransitionStamp()
        heartbeat.noteCallout()
        #expect(heartbeat.takeTransitionStamp() != nil && heartbeat.calloutCount == 2)
        turn([.beforeTimers])
        #expect(heartbeat.calloutsAtTurnStamp == 2)
    }

    @Test("A real loop counts each block, timer, source and observer that it calls")
    func realCallouts() async {
        let count = await onLoopThread { loop in
            let source = EventSource { _ in }
            loop.add(source)
            let before = loop.heartbeat.calloutCount
            source.signal()
            loop.add(EventTimer(at: .now) { _ in })
            loop.add(LoopObserver(activities: .entry, repeats: false) { _, _ in })
            loop.perform {}
            loop.perform {}
            loop.run(for: .zero)
            source.invalidate()
            return loop.heartbeat.calloutCount - before
        }
        #expect(count >= 5)
    }

    @Test("A reader sees sums that never shrink while the loop counts")
    func concurrentReading() {
        _ = heartbeat.attach(watcher)
        let isOver = Atomic(false)
        let heartbeat = heartbeat
        let loop = TestThread {
            for _ in 0..<50_000 {
                heartbeat.publish(.afterWaiting)
                heartbeat.publish(.waiting)
            }
            isOver.store(true, ordering: .releasing)
        }
        var last: UInt64 = 0
        var shrank = 0
        while !isOver.load(ordering: .acquiring) {
            let count = heartbeat.turnHistogram.count
            shrank += count < last ? 1 : 0
            last = count
        }
        loop.join()
        #expect(shrank == 0 && heartbeat.turnHistogram.count == 50_000)
    }
}

private final class SilentWatcher: LoopWatcher {
    func loopDidLeaveRest() {}
}
