package import StallReading
package import StallReports

/// How much the number of a fault's stalls varies between runs of the same command.
package struct Dispersion: Codable, Hashable, Sendable {
    /// The variance of the numbers, divided by their mean. About 1 for stalls that are independent of each other, more for
    /// those that come in bursts.
    var index: Double
    /// The number of runs, at least two.
    var runs: Int

    /// Nil without two runs, or without a stall in them. Longer runs are expected to have more stalls.
    package init?(_ runs: [(count: Int, watchedNs: Int64)]) {
        let runs = runs.filter { $0.watchedNs > 0 }
        let count = Double(runs.map { max(0, $0.count) }.saturatingSum())
        guard runs.count > 1, count > 0 else { return nil }
        let watched = runs.map { Double($0.watchedNs) }.reduce(0, +)
        let squares = runs.map { run in
            let expected = count * Double(run.watchedNs) / watched
            let difference = Double(max(0, run.count)) - expected
            return difference * difference / expected
        }
        (index, self.runs) = (squares.reduce(0, +) / Double(runs.count - 1), runs.count)
    }

    var isPossible: Bool { index >= 0 && index.isFinite && runs > 1 }

    /// The probability at which the numbers are no longer taken for those of independent stalls. In simulations a smaller one
    /// leaves more false alarms, and a larger one finds fewer changes.
    private static let chance = 0.2

    /// How many stalls have the weight of one, by what is known of both sides (quasi-Poisson: Wedderburn, 1974). 1 unless the
    /// numbers vary more than chance explains: otherwise the estimate itself would hide changes.
    static func stallsPerBurst(_ sides: [Dispersion?]) -> Double {
        let known = sides.compactMap(\.self).filter(\.isPossible)
        let freedom = known.map { Double($0.runs) - 1 }.reduce(0, +)
        let squares = known.map { $0.index * (Double($0.runs) - 1) }.reduce(0, +)
        guard freedom > 0, Statistics.upperChiSquare(squares, freedom: freedom) <= chance else { return 1 }
        return max(1, squares / freedom)
    }
}

extension Baseline {
    /// From separate runs of one command: only they show whether stalls come in bursts.
    package init?(repeats: [ReportReader.Overview], at moment: Timestamp) {
        var all = ReportReader.Overview()
        for overview in repeats { all.add(overview) }
        self.init(all, at: moment)
        noteDispersion(of: repeats)
    }

    mutating func noteDispersion(of repeats: [ReportReader.Overview]) {
        guard repeats.count > 1 else { return }
        let runs = repeats.compactMap { Baseline($0, at: recordedAt) }.map { run in
            (
                run.watchedNs,
                Dictionary(run.faults.flatMap { fault in fault.names.map { ($0, fault) } }) { first, _ in first }
            )
        }
        for index in faults.indices {
            let names = faults[index].names
            faults[index].dispersion = Dispersion(
                runs.map { watchedNs, faults in
                    let same = Dictionary(names.compactMap { faults[$0] }.map { ($0.fingerprint, $0.count) }) {
                        first,
                        _ in first
                    }
                    return (same.values.saturatingSum(), watchedNs)
                }
            )
        }
    }
}
