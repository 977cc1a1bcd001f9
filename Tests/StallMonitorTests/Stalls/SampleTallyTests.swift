import RunLoopKit
import StackCapture
import StallDetection
import Testing

@testable import StallMonitor

@Suite("Samples kept of a long stall")
struct SampleTallyTests {
    private func sample(_ address: UInt, at milliseconds: Int) -> StackSample {
        StackSample(
            time: MonotonicInstant(nanoseconds: UInt64(1_000 + milliseconds) * 1_000_000),
            stack: CapturedStack(
                frames: [.init(address: address, found: .register)],
                method: .signal,
                cost: .init(heldNanoseconds: 0, unwindNanoseconds: 0, bytesCopied: 0)
            )
        )
    }

    @Test("Equal stacks are kept once, with their number and time")
    func merges() {
        var tally = SampleTally([sample(1, at: 250), sample(1, at: 100), sample(2, at: 150)])
        for time in [300, 400, 500] { tally.add(sample(1, at: time)) }
        #expect(tally.samples.map(\.stack.frames[0].address) == [1, 2])
        #expect(tally.samples.map(\.count) == [5, 1])
        #expect(tally.samples.map(\.span) == [.milliseconds(400), .milliseconds(50)])
    }

    @Test("Of many different stacks few are kept, and no time is lost")
    func bounded() {
        var tally = SampleTally([sample(0, at: 0)])
        for index in 1...10_000 { tally.add(sample(UInt(index), at: index * 10)) }
        #expect(tally.samples.count <= SampleTally.limit)
        #expect(tally.samples[0].stack.frames[0].address == 0)
        #expect(tally.samples.reduce(0) { $0 + $1.count } == 10_001)
        let total = tally.samples.reduce(Duration.zero) { $0 + ($1.span ?? .zero) }
        #expect(total == .milliseconds(100_010))
    }

    @Test("The stack with the most time is kept when others are left out, with at least its own time")
    func heavyOneStays() {
        var tally = SampleTally([sample(0, at: 0)])
        for index in 1...300 {
            tally.add(sample(7, at: index * 100 - 50))
            tally.add(sample(UInt(100 + index), at: index * 100))
        }
        let heaviest = tally.samples.max { ($0.span ?? .zero) < ($1.span ?? .zero) }
        #expect(heaviest?.stack.frames[0].address == 7)
        #expect(heaviest?.span ?? .zero >= .seconds(14))
    }

    @Test("Of a pool's workers, which are sampled in turn, each keeps its share of the samples and of the time")
    func workers() {
        let workers: [Int32] = [11, 12]
        let later = (1...200).flatMap { round in
            workers.map { worker in
                var sample = sample(UInt(round), at: round * 100)
                sample.threadID = worker
                sample.span = .milliseconds(worker == 11 ? 10 : 20)
                return sample
            }
        }
        var tally = SampleTally([sample(0, at: 0)])
        for sample in later { tally.add(sample) }
        #expect(tally.samples.count <= SampleTally.limit)
        for (worker, time) in zip(workers, [Duration.seconds(2), .seconds(4)]) {
            let own = tally.samples.filter { $0.threadID == worker }
            #expect(own.reduce(.zero) { $0 + ($1.span ?? .zero) } == time && own.reduce(0) { $0 + $1.count } == 200)
        }
        #expect(workers.allSatisfy { worker in later.halved.count { $0.threadID == worker } == 100 })
    }

    @Test("A stall that was over before a look has none")
    func empty() {
        var tally = SampleTally()
        #expect(tally.samples.isEmpty)
        tally.add(sample(1, at: 0))
        #expect(tally.samples.count == 1)
    }
}
