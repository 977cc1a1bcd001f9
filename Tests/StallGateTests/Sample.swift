import Glibc
import StallGate
import StallReports

enum Sample {
    static let start = Timestamp(seconds: 1_795_000_000)
    static let host = HostIdentity(name: "host")
    static let process = ProcessIdentity(pid: 7)

    static func report(
        id: ULID = .make(),
        fingerprint: String = "v1:0123456789abcdef",
        ms: Int64 = 612,
        suppressed: Int = 0,
        function: String = "shop.Cart.total()"
    ) -> StallReport {
        guard let fingerprint = Fingerprint(rawValue: fingerprint) else { preconditionFailure("not a fingerprint") }
        return StallReport(
            id: id,
            kind: .blocked,
            state: .recovered,
            startedAt: start,
            detectedAt: start,
            endedAt: start.advanced(byNanoseconds: ms * 1_000_000),
            durationNs: ms * 1_000_000,
            rule: .init(name: .blocked, tickNs: 50_000_000, ticks: 5),
            host: host,
            process: process,
            watched: .init(label: "main"),
            thread: .init(id: 7),
            cause: .init(verdict: .onCPU),
            culprit: .init(function: function, stack: 0, frame: 0),
            fingerprint: fingerprint,
            suppressed: suppressed
        )
    }

    /// A completed run that counted no stalls.
    static func run() -> RunRecord {
        RunRecord(
            state: .stopped,
            startedAt: start,
            updatedAt: start,
            host: host,
            process: process,
            monitorVersion: "0.1.0",
            watched: [.init(label: "main", watchedNs: 59_000_000_000)]
        )
    }
}

/// Stalls with known parameters: counts from a Poisson distribution, lengths from a log-normal one, with a seed that is printed.
struct Simulation: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) {
        state = seed
        print("seed: \(seed)")
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    mutating func next() -> UInt64 {
        state &+= 0x9e37_79b9_7f4a_7c15
        var z = state
        z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
        z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
        return z ^ (z >> 31)
    }

    private mutating func unit() -> Double { (Double(next() >> 11) + 0.5) * 0x1p-53 }

    /// Knuth's algorithm, in parts that do not underflow.
    mutating func count(mean: Double) -> Int {
        var (left, count) = (mean, 0)
        while left > 0 {
            let part = min(left, 30)
            var product = unit()
            while product > exp(-part) {
                count += 1
                product *= unit()
            }
            left -= part
        }
        return count
    }

    /// Around 300 ms; half of them deviate by less than a third.
    mutating func lengths(_ count: Int, times factor: Double = 1) -> [Int64] {
        (0..<count).map { _ in
            let normal = (-2 * log(unit())).squareRoot() * cos(2 * .pi * unit())
            return Int64(3e8 * factor * exp(0.5 * normal))
        }
    }

    /// A fault with this mean number of stalls per hour, watched for a number of hours.
    mutating func figures(mean: Double, hours: Double, times factor: Double = 1) -> Comparison.Figures {
        let count = count(mean: mean * hours)
        return .init(count: count, watchedNs: Int64(hours * 3.6e12), lengthsNs: lengths(count, times: factor))
    }

    /// A comparison of several faults, one of which has changed in the second set.
    mutating func comparison(
        means: [Double],
        hours: (before: Double, after: Double),
        rate: Double = 1,
        length: Double = 1
    ) -> Comparison {
        let faults = means.enumerated().map { index, mean in
            (
                fault: Self.fingerprint(index),
                before: figures(mean: mean, hours: hours.before),
                // Only the first has changed.
                after: figures(
                    mean: index == 0 ? mean * rate : mean,
                    hours: hours.after,
                    times: index == 0 ? length : 1
                )
            )
        }
        return Comparison(faults)
    }

    static func fingerprint(_ index: Int) -> Fingerprint {
        let digits = String(index, radix: 16)
        guard let name = Fingerprint(rawValue: "v2:" + String(repeating: "0", count: 16 - digits.count) + digits) else {
            preconditionFailure("not a fingerprint")
        }
        return name
    }
}
