import Foundation
import Testing

@testable import StallGate

@Suite("Comparison with the past")
struct ComparisonTests {
    @Test("the test of rates is exact: values by hand, and extremes")
    func rate() {
        // All three in the second half: an eighth. At least two of three: a half.
        #expect(abs(Statistics.risenRate(before: 0, after: 3, share: 0.5) - 0.125) < 1e-12)
        #expect(abs(Statistics.risenRate(before: 1, after: 2, share: 0.5) - 0.5) < 1e-12)
        // SciPy: binomtest(24, 34, alternative="greater"), 0.01215.
        #expect(abs(Statistics.risenRate(before: 10, after: 24, share: 0.5) - 0.012153255) < 1e-9)
        #expect(Statistics.risenRate(before: 5, after: 0, share: 0.5) == 1)
        #expect(Statistics.risenRate(before: 0, after: 0, share: 0.5) == 1)
        for share in [1e-300, 1e-18, 0.5, 1 - 1e-16] {
            for count in [Int.max, .max - 1, .max / 2] {
                #expect((0...1).contains(Statistics.risenRate(before: 0, after: count, share: share)))
                #expect((0...1).contains(Statistics.risenRate(before: count, after: 1, share: share)))
            }
        }
        #expect(Statistics.risenRate(before: 3, after: 3, share: 1) == 1)
        #expect(Statistics.risenRate(before: 0, after: 1, share: 0) == 0)
        #expect(Statistics.risenRate(before: .max, after: .max, share: 0.5) <= 1)
        // Rare events in many trials, by the Poisson distribution: 1 - 1.2 / e^0.2, and 1 - 2.5 / e.
        #expect(abs(Statistics.binomialTail(200_000, atLeast: 2, 1e-6) - 0.017523096) < 1e-6)
        #expect(abs(Statistics.binomialTail(1 << 60, atLeast: 3, 0x1p-60) - 0.080301397) < 1e-6)
        // The normal approximation continues without a jump.
        let (small, large) = (100_000, 100_002)
        let ends = [small, large].map { Statistics.binomialTail($0, atLeast: $0 / 2 + 300, 0.5) }
        #expect(abs(ends[0] - ends[1]) < 1e-3 * ends[0])
    }

    @Test("the test of lengths: by hand, with ties, and equal by both methods where they meet")
    func lengths() {
        // One of the 20 ways to choose three of six ranks has the largest sum.
        #expect(abs(Statistics.larger(before: [1, 2, 3], after: [4, 5, 6]) - 0.05) < 1e-12)
        // All are equal: each choice is as large.
        #expect(Statistics.larger(before: [7, 7, 7], after: [7, 7, 7]) == 1)
        #expect(
            Statistics.larger(before: [Double](repeating: 7, count: 20), after: [Double](repeating: 7, count: 20)) == 1
        )
        // Computed by hand: of ten ways to choose two of {1, 2, 2, 2, 3}, seven have a mean rank of at least (3 + 3) / 2.
        #expect(abs(Statistics.larger(before: [1, 2, 3], after: [2, 2]) - 0.7) < 1e-12)
        // SciPy: mannwhitneyu(range(8, 20), range(12), alternative="greater", method="asymptotic"), then with pairs of ties.
        let (low, high) = ((0..<12).map(Double.init), (8..<20).map(Double.init))
        #expect(abs(Statistics.larger(before: low, after: high) - Self.fromSciPy) < 1e-6)
        let (few, many) = (low.map { ($0 / 4).rounded(.down) }, high.map { ($0 / 4).rounded(.down) })
        #expect(abs(Statistics.larger(before: few, after: many) - Self.fromSciPyWithTies) < 1e-6)
    }

    private static let fromSciPy = 0.00012157620847603318
    private static let fromSciPyWithTies = 8.189040055554478e-05

    @Test("Holm: the smallest probability is multiplied by their number, and no later one is below it")
    func holm() {
        #expect(Statistics.holm([0.01, 0.04, 0.03]).map { ($0 * 1000).rounded() } == [30, 60, 60])
        #expect(Statistics.holm([0.9, 0.8]) == [1, 1])
        #expect(Statistics.holm([]) == [])
    }

    /// 10,000 with TEST_ALL.
    private static let trials = ProcessInfo.processInfo.environment["TEST_ALL"] == nil ? 200 : 10_000

    /// The tolerance for a small number of trials, three standard deviations; with 10,000 trials there is none.
    private static func noise(_ share: Double) -> Double {
        trials < 10_000 ? 3 * (share * (1 - share) / Double(trials)).squareRoot() : 0
    }

    /// The share of trials in which a change is proven.
    private func proven(_ seed: UInt64, _ trial: (inout Simulation) -> Comparison) -> Double {
        var simulation = Simulation(seed: seed)
        var count = 0
        for _ in 0..<Self.trials where !trial(&simulation).proven.isEmpty { count += 1 }
        return Double(count) / Double(Self.trials)
    }

    @Test(
        "without a change at most one comparison in a hundred finds one, however many faults there are"
    )
    func falseAlarms() {
        let cases: [(means: [Double], hours: (before: Double, after: Double))] = [
            ([20], (1, 1)), ([0.3, 1, 3, 10, 30], (5, 1)), ([4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4], (1, 2)),
        ]
        for (means, hours) in cases {
            let alarms = proven(14) { $0.comparison(means: means, hours: hours) }
            print("false alarms with \(means.count) faults: \(alarms * 100) % of \(Self.trials)")
            #expect(alarms <= 0.01 + Self.noise(0.01), "\(means)")
        }
    }

    /// Runs whose stalls come in bursts of this size, five before and five after.
    private static func bursts(_ size: Int, _ simulation: inout Simulation, rate: Double = 1) -> Comparison {
        let sides = [1, rate].map { rate in
            let counts = (0..<5).map { _ in size * simulation.count(mean: 12 * rate / Double(size)) }
            var side = Comparison.Figures(count: counts.reduce(0, +), watchedNs: 5, lengthsNs: [])
            side.dispersion = Dispersion(counts.map { ($0, 1) })
            return side
        }
        return Comparison([(Simulation.fingerprint(0), sides[0], sides[1])])
    }

    @Test(
        "stalls in bursts give a false alarm in at most one of fifty comparisons of five runs each; others are found as before"
    )
    func bursts() {
        for size in [4, 12, 100] {
            let alarms = proven(20) { Self.bursts(size, &$0) }
            print("false alarms with bursts of \(size): \(alarms * 100) % of \(Self.trials)")
            #expect(alarms <= 0.02 + Self.noise(0.02), "\(size)")
        }
        #expect(proven(21) { Self.bursts(1, &$0) } <= 0.01 + Self.noise(0.01))
        let found = proven(22) { Self.bursts(1, &$0, rate: 2) }
        print("found with five runs each: a doubled rate \(found * 100) %")
        #expect(found >= 0.95 - Self.noise(0.95))
    }

    /// Runs as above, in which the stalls of one burst last about as long.
    private static func alikeBursts(_ size: Int, _ simulation: inout Simulation, times factor: Double = 1) -> Comparison
    {
        let sides = [1, factor].map { factor in
            let counts = (0..<5).map { _ in simulation.count(mean: 60 / Double(size)) }
            let lengths = simulation.lengths(counts.reduce(0, +), times: factor).flatMap { burst in
                simulation.lengths(size).map { burst + $0 / 100 }
            }
            var side = Comparison.Figures(count: 1, watchedNs: 5, lengthsNs: lengths)
            side.dispersion = Dispersion(counts.map { ($0 * size, 1) })
            return side
        }
        return Comparison([(Simulation.fingerprint(0), sides[0], sides[1])])
    }

    @Test(
        "stalls of one burst that last as long are not taken for many long stalls; a fault without bursts is judged as before"
    )
    func alikeBursts() {
        for size in [12, 30] {
            let alarms = proven(23) { Self.alikeBursts(size, &$0) }
            print("false alarms by lengths with bursts of \(size): \(alarms * 100) % of \(Self.trials)")
            #expect(alarms <= 0.025 + Self.noise(0.025), "\(size)")
        }
        let found = proven(24) { Self.alikeBursts(1, &$0, times: 1.5) }
        print("found with five runs each: stalls 1.5 times as long \(found * 100) %")
        #expect(found >= 0.95 - Self.noise(0.95))
        // SciPy: norm.sf((450 - 0.5) / sqrt(30 * 30 * 61 / 12 * 10)); at best one of the 20 ways to choose three bursts of six.
        let (low, high) = ((0..<30).map(Double.init), (30..<60).map(Double.init))
        #expect(abs(Statistics.larger(before: low, after: high, perBurst: 10) - 0.05) < 1e-6)
        #expect(Statistics.larger(before: low, after: high, perBurst: 40) == 1)
    }

    @Test("dispersion: values by hand; runs of different lengths; numbers that chance explains are no bursts")
    func dispersion() throws {
        // The mean is 10: (30 - 10)² / 10 and twice 10, over two degrees of freedom.
        let burst = try #require(Dispersion([(30, 1), (0, 1), (0, 1)]))
        #expect(burst.index == 30 && burst.runs == 3)
        #expect(Dispersion.stallsPerBurst([burst, nil]) == 30)
        // Three times as many in a run three times as long are what is expected.
        #expect(Dispersion([(10, 1), (30, 3)])?.index == 0)
        #expect(
            Dispersion([(10, 1)]) == nil && Dispersion([(0, 1), (0, 1)]) == nil && Dispersion([(1, 0), (2, 1)]) == nil
        )
        #expect(Dispersion.stallsPerBurst([Dispersion([(8, 1), (12, 1), (13, 1)]), nil]) == 1)
        #expect(Dispersion.stallsPerBurst([nil, nil]) == 1)
        // SciPy: chi2.sf(30, 19), 0.0518; chi2.sf(11, 4), 0.0266.
        #expect(abs(Statistics.upperChiSquare(30, freedom: 19) - 0.0518) < 0.001)
        #expect(abs(Statistics.upperChiSquare(11, freedom: 4) - 0.0266) < 0.001)
        #expect(Dispersion([(.max, .max), (.max, 1)]).map(\.isPossible) == true)
    }

    @Test(
        "a doubled rate of 60 stalls or length of 25 is found in 95 %; the rate among six faults from 75 stalls on"
    )
    func found() {
        let rate = proven(15) { $0.comparison(means: [60], hours: (1, 1), rate: 2) }
        #expect(rate >= 0.95 - Self.noise(0.95))
        var simulation = Simulation(seed: 16)
        var longer = 0
        for _ in 0..<Self.trials {
            let before = Comparison.Figures(count: 25, watchedNs: 1, lengthsNs: simulation.lengths(25))
            let after = Comparison.Figures(count: 25, watchedNs: 1, lengthsNs: simulation.lengths(25, times: 2))
            if Comparison([(Simulation.fingerprint(0), before, after)]).proven.contains(where: { $0.change == .longer })
            {
                longer += 1
            }
        }
        #expect(Double(longer) / Double(Self.trials) >= 0.95 - Self.noise(0.95))
        let all = proven(17) { $0.comparison(means: [75, 0.3, 1, 3, 10, 30], hours: (1, 1), rate: 2) }
        #expect(all >= 0.95 - Self.noise(0.95))
        print(
            "found: rate \(rate), length \(Double(longer) / Double(Self.trials)), rate among six faults \(all) of \(Self.trials)"
        )
    }

    @Test(
        "the curve in the documentation",
        .enabled(if: ProcessInfo.processInfo.environment["TEST_ALL"] != nil, "TEST_ALL is not set")
    )
    func curve() {
        for mean in [5.0, 10, 20, 30, 40, 50, 75, 100] {
            let rate = [1.5, 2, 3].map { factor in
                proven(18) { $0.comparison(means: [mean], hours: (1, 1), rate: factor) }
            }
            print("curve: \(mean) stalls before: times as often 1.5, 2, 3 are found in \(rate.map { $0 * 100 }) %")
        }
        for count in [5, 8, 10, 15, 20, 30, 50] {
            let length = [1.25, 1.5, 2].map { factor in
                proven(19) { simulation in
                    let (before, after) = (simulation.lengths(count), simulation.lengths(count, times: factor))
                    let watched: Int64 = 1_000_000_000
                    return Comparison([
                        (
                            Simulation.fingerprint(0), .init(count: count, watchedNs: watched, lengthsNs: before),
                            .init(count: count, watchedNs: watched, lengthsNs: after)
                        )
                    ])
                }
            }
            print("curve: \(count) stalls each: times as long 1.25, 1.5, 2 are found in \(length.map { $0 * 100 }) %")
        }
    }
}
