import Glibc
import StallReports

/// Significance tests: each returns the probability of figures at least as bad if nothing has changed. Pure, and defined for
/// any input.
enum Statistics {
    /// Whether a rate has risen, by the exact conditional test of two Poisson counts: if both have the same rate, the second
    /// count is binomial given their sum (Przyborowski and Wilenski, 1940).
    ///
    /// - Parameter share: The second's part of the total watched time, between 0 and 1.
    static func risenRate(before: Int, after: Int, share: Double) -> Double {
        binomialTail(before.addingSaturated(after), atLeast: after, share)
    }

    /// The least value of ``risenRate(before:after:share:)`` for this total number of stalls: if all of them are in the second
    /// set.
    static func leastRisenRate(_ count: Int, share: Double) -> Double { pow(share, Double(count)) }

    /// The probability of at least `least` successes in `count` trials, each with the probability `chance`.
    static func binomialTail(_ count: Int, atLeast least: Int, _ chance: Double) -> Double {
        guard least > 0 else { return 1 }
        guard least <= count, chance > 0 else { return 0 }
        guard chance < 1 else { return 1 }
        let mean = Double(count) * chance
        // There the normal distribution is exact enough, and summing single terms takes long. For few successes in many trials
        // it is not.
        if count > 100_000, mean * (1 - chance) > 1000 {
            return upperNormal((Double(least) - 0.5 - mean) / (mean * (1 - chance)).squareRoot())
        }
        if Double(least) > mean { return min(1, sum(count, from: least, by: 1, chance)) }
        return max(0, 1 - sum(count, from: least - 1, by: -1, chance))
    }

    /// Sums terms of the binomial distribution from `start` on, away from its mean, until they no longer matter.
    private static func sum(_ count: Int, from start: Int, by step: Int, _ chance: Double) -> Double {
        let odds = chance / (1 - chance)
        var term = exp(
            logChoices(count, start) + Double(start) * log(chance)
                + Double(count - start) * log1p(-chance)
        )
        var (sum, at) = (term, start)
        // Beyond its ends there are no terms, and no numbers.
        while term > sum * 1e-17, step > 0 ? at < count : at > 0 {
            term *= step > 0 ? Double(count - at) / Double(at + 1) * odds : Double(at) / Double(count - at + 1) / odds
            at += step
            sum += term
        }
        return sum
    }

    /// The logarithm of the binomial coefficient. For large numbers, the difference of factorials would lose its precision.
    private static func logChoices(_ count: Int, _ chosen: Int) -> Double {
        let few = min(chosen, count - chosen)
        guard count > 100_000 else { return logFactorial(count) - logFactorial(few) - logFactorial(count - few) }
        let (all, part) = (Double(count), Double(few))
        let rest = log1p(-part / all)
        return part * log(all) - (all - part + 0.5) * rest - part + 1 / (12 * all) - 1 / (12 * (all - part))
            - logFactorial(few)
    }

    /// Uses Stirling's series, whose error is below 1e-10 from 10 on.
    private static func logFactorial(_ number: Int) -> Double {
        if number < 10 { return log((1...max(1, number)).reduce(1.0) { $0 * Double($1) }) }
        let x = Double(number)
        return x * log(x) - x + 0.5 * log(2 * .pi * x) + 1 / (12 * x) - 1 / (360 * x * x * x) + 1 / (1260 * pow(x, 5))
    }

    /// The upper tail of the chi-square distribution, by the cube root's normal distribution (Wilson and Hilferty, 1931).
    static func upperChiSquare(_ value: Double, freedom: Double) -> Double {
        guard value > 0, freedom > 0 else { return 1 }
        let spread = 2 / (9 * freedom)
        return upperNormal((cbrt(value / freedom) - 1 + spread) / spread.squareRoot())
    }

    /// The upper tail of the normal distribution.
    static func upperNormal(_ value: Double) -> Double { value.isNaN ? 1 : 0.5 * erfc(value / 2.0.squareRoot()) }

    /// Whether the second's values tend to be larger: the Mann–Whitney test, exact for few values, with mean ranks for ties.
    ///
    /// - Parameter perBurst: How many values have the weight of one, because those of one burst may be alike. At least 1.
    static func larger(before: [Double], after: [Double], perBurst: Double = 1) -> Double {
        guard !before.isEmpty, !after.isEmpty else { return 1 }
        let pooled = (before.map { ($0, false) } + after.map { ($0, true) }).sorted { $0.0 < $1.0 }
        var doubledRanks: [Int] = []
        var (ties, sum, start) = (0.0, 0, 0)
        while start < pooled.count {
            var end = start
            while end < pooled.count, pooled[end].0 == pooled[start].0 { end += 1 }
            let size = Double(end - start)
            ties += size * size * size - size
            for index in start..<end {
                doubledRanks.append(start + 1 + end)
                if pooled[index].1 { sum += start + 1 + end }
            }
            start = end
        }
        guard perBurst > 1 else {
            return pooled.count <= 30 && min(before.count, after.count) < 10
                ? exactRankTail(doubledRanks, choosing: after.count, atLeast: sum)
                : normalRankTail(before.count, after.count, ties, Double(sum) / 2)
        }
        let tail = normalRankTail(before.count, after.count, ties, Double(sum) / 2, perBurst)
        return max(tail, leastRankTail(before.count, after.count, perBurst))
    }

    /// The least value of ``larger(before:after:perBurst:)``, of which the normal distribution knows nothing: if all the second's
    /// bursts are larger than all the first's, that is one of the ways to choose as many of them.
    private static func leastRankTail(_ before: Int, _ after: Int, _ perBurst: Double) -> Double {
        let (m, n) = (Int(Double(before) / perBurst), Int(Double(after) / perBurst))
        return m > 0 && n > 0 ? exp(-logChoices(m + n, n)) : 1
    }

    private static func normalRankTail(
        _ before: Int,
        _ after: Int,
        _ ties: Double,
        _ rankSum: Double,
        _ perBurst: Double = 1
    ) -> Double {
        let (m, n) = (Double(before), Double(after))
        let all = m + n
        let mean = n * (all + 1) / 2
        let variance = m * n / 12 * (all + 1 - ties / (all * (all - 1))) * perBurst
        return variance > 0 ? upperNormal((rankSum - mean - 0.5) / variance.squareRoot()) : 1
    }

    /// The share of all ways to choose `chosen` of the ranks in which their sum is at least `least`.
    private static func exactRankTail(_ ranks: [Int], choosing chosen: Int, atLeast least: Int) -> Double {
        let most = ranks.reduce(0, +)
        var ways = [[Double]](repeating: [Double](repeating: 0, count: most + 1), count: chosen + 1)
        ways[0][0] = 1
        for rank in ranks {
            for number in stride(from: chosen, to: 0, by: -1) {
                for sum in stride(from: most, through: rank, by: -1) where ways[number - 1][sum - rank] > 0 {
                    ways[number][sum] += ways[number - 1][sum - rank]
                }
            }
        }
        return ways[chosen][least...].reduce(0, +) / ways[chosen].reduce(0, +)
    }

    /// Holm's correction for multiple comparisons: if nothing has changed, the probability that any value is below a level is
    /// at most that level.
    static func holm(_ values: [Double]) -> [Double] {
        var corrected = values
        var least = 0.0
        for (place, index) in values.indices.sorted(by: { values[$0] < values[$1] }).enumerated() {
            least = max(least, min(1, values[index] * Double(values.count - place)))
            corrected[index] = least
        }
        return corrected
    }

    /// Zero for an empty array.
    static func median(_ values: [Double]) -> Double {
        guard !values.isEmpty else { return 0 }
        let sorted = values.sorted()
        return (sorted[(sorted.count - 1) / 2] + sorted[sorted.count / 2]) / 2
    }
}
