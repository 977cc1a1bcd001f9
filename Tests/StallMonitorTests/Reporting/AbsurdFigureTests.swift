import RunLoopKit
import StackCapture
import StallReports
import Testing

@testable import StallDiagnosis
@testable import StallMonitor

/// What /proc, a control group, a clock or a report can say but never should: the result is a figure as good as
/// possible, and no trap.
@Suite("Absurd figures")
struct AbsurdFigureTests {
    private static let most = UInt64.max

    private func evidence(_ count: UInt64) throws -> ThreadEvidence {
        let fields = ["S"] + (1..<45).map { _ in "\(count)" }
        let schedule = "\(count) \(count) \(count)"
        return try #require(ThreadEvidence(stat: "7 (main) " + fields.joined(separator: " "), schedstat: schedule))
    }

    private func supply(_ count: UInt64) throws -> ProcessorSupply {
        let text = "nr_periods \(count)\nnr_throttled \(count)\nthrottled_usec \(count)"
        let throttling = try #require(ProcessorSupply.Throttling(text))
        var supply = ProcessorSupply(groups: [throttling])
        supply.cgroupPressure = ProcessorSupply.pressure("some avg10=0 total=\(count)")
        supply.systemPressure = ProcessorSupply.pressure("some avg10=0 total=\(count)")
        supply.steal = ProcessorSupply.steal("cpu 0 0 0 0 0 0 0 \(count)")
        supply.load = ProcessorSupply.Load("1e308 0 0 \(Int.max)/1")
        return supply
    }

    private func windows() throws -> [EvidenceWindow] {
        var files = SupplyFiles()
        files.limited = [.init(statistics: "", quotaPercent: 1)]
        let pairs: [(UInt64, UInt64)] = [
            (0, Self.most), (Self.most, 0), (Self.most, Self.most), (0, Self.most / 2 + 1),
        ]
        return try pairs.flatMap { before, after in
            try [1, 250_000_000, Int64.max].map { length in
                var window = EvidenceWindow(
                    length: .nanoseconds(length),
                    before: try evidence(before),
                    after: try evidence(after)
                )
                window.supply = SupplyWindow(
                    files: files,
                    before: try supply(before),
                    after: try supply(after),
                    processors: 1
                )
                return window
            }
        }
    }

    @Test("Counts that jump to the largest number give a verdict and a sentence")
    func counts() throws {
        for window in try windows() {
            for state in ["R", "S", "D", nil] as [Character?] {
                #expect(
                    !Diagnosis(window: window, state: state, waits: WaitProfile([WaitProfile.Sample]())).summary
                        .isEmpty
                )
            }
            for sentence in [Diagnosis.computing(window), Diagnosis.starving(window)] { #expect(!sentence.isEmpty) }
            let told = StallReport.Evidence(window, WaitProfile([WaitProfile.Sample]()))
            #expect([told.cpuNs, told.runDelayNs, told.blockIONs ?? 0].allSatisfy { $0 ?? 0 >= 0 })
        }
        let window = try windows()[0]
        #expect(window.blockIO == window.length)
        #expect(window.supply?.cgroupPressure == .nanoseconds(Int64.max))
    }

    @Test("A limit that is not a valid number is ignored")
    func quotas() {
        let absurd = [
            "inf 100000", "1 inf", "nan nan", "1 1e308", "1e308 1", "1e400 100000", "1 1e-320", "-inf 1",
            "9223372036854775807 9223372036854775807",
        ]
        for text in absurd {
            let mounts = "31 23 0:28 / /c rw - cgroup2 cgroup2 rw\n"
            let found = SupplyFiles(cgroup: "0::/\n", mounts: mounts) { $0 == "/c/cpu.max" ? text : nil }
            #expect(found.limited.isEmpty, "\(text)")
        }
    }

    @Test("A clock that is set back and forth by centuries adds up to the largest number")
    func pauses() {
        var tally = PauseTally()
        for _ in 0..<3 { tally.add(.init(kind: .clockStep, startedAt: .now(), durationNs: .max)) }
        for _ in 0..<3 { tally.sum(.expectedSlow, lasting: .nanoseconds(Int64.max)) }
        #expect(tally.log.totals["clock_step"] == .init(count: 3, durationNs: .max))
        #expect(tally.log.totals["expected_slow"] == .init(count: 3, durationNs: .max))
    }

    @Test("Clocks at the ends of their range")
    func clocks() {
        let ends: [Int64] = [.min, -1, 0, 1, .max]
        for earlier in ends {
            for later in ends {
                let (before, after) = (
                    ClockOffsets(monotonic: earlier, suspended: earlier, wall: earlier),
                    ClockOffsets(monotonic: later, suspended: later, wall: later)
                )
                let isFar = earlier != later && [earlier, later].contains { $0.magnitude > 1 }
                #expect((after.suspension(since: before) != nil) == (isFar && later > earlier))
                #expect((after.step(since: before) != nil) == isFar)
            }
        }
    }

    @Test("A timer that expires in centuries")
    func timers() {
        let info = DescriptorInfo(text: "it_value: (4294967295, 9223372036854775807)\n")
        #expect(info.timerNanoseconds == .max)
    }

    @Test("An invalid frame index gives no invalid callers")
    func callers() {
        let frames = [StallReport.Frame(address: 1), StallReport.Frame(address: 2)]
        var stack = StallReport.Stack(thread: .init(id: 1), capturedAt: .now(), frames: frames)
        #expect(stack.callers(from: -1) == frames && stack.callers(from: .max).isEmpty)
        stack.async = .init(from: 1, frames: [], ends: .task)
        #expect(stack.callers(from: .min) == frames && stack.callers(from: .max).isEmpty)
        stack.async?.from = .min
        #expect(stack.callers(from: -1) == frames)
    }
}
