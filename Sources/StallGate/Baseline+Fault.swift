import StallReading
import StallReports

extension Baseline.Fault {
    /// Takes over what has become better.
    ///
    /// - Parameters:
    ///   - now: Nil if the fault did not occur any more.
    ///   - wholeNs: How long the later runs watched.
    mutating func improve(_ change: Comparison.Change, to now: Self?, watchedNs wholeNs: Int64) {
        guard change != .longer else {
            lengthsNs = now?.lengthsNs ?? []
            return
        }
        (count, starved) = (now?.count ?? 0, now?.starved ?? 0)
        watchedNs = now?.watchedNs ?? wholeNs
        // Without it, how the baseline's stalls came is the best that is known.
        dispersion = now?.dispersion ?? dispersion
    }

    /// - Parameter stalls: The share of the stalls that stays, one of each kind at least. 0: all stay.
    mutating func shrink(time: Double, stalls: Double) {
        watchedNs = Int64(saturating: Double(watchedNs) * time)
        guard stalls > 0 else { return }
        let scaled = { (number: Int) in min(number, max(1, Int(saturating: (Double(number) * stalls).rounded()))) }
        (count, starved) = (scaled(count), scaled(starved))
    }

    mutating func add(_ occurrence: Occurrence) {
        function = function ?? occurrence.example?.culpritName
        if occurrence.verdict == .starved {
            starved = starved.addingSaturated(occurrence.count)
            return
        }
        count = count.addingSaturated(occurrence.count)
        if let stall = occurrence.stall, stall.state == .recovered, lengthsNs.count < Baseline.mostLengths {
            lengthsNs.append(stall.runningNs)
        }
    }

    /// Notes a place where it occurred.
    mutating func note(_ place: WatchedPlace) {
        guard !(loops ?? []).contains(place), (loops?.count ?? 0) < WatchedPlace.most else { return }
        loops = (loops ?? []) + [place]
    }

    var isPossible: Bool {
        count >= 0 && starved >= 0 && watchedNs >= 0 && lengthsNs.allSatisfy { $0 >= 0 }
            && dispersion?.isPossible ?? true
    }

    /// - Parameter starved: Whether stalls caused by the machine count.
    func figures(countingStarved: Bool) -> Comparison.Figures {
        let all = countingStarved ? count.addingSaturated(starved) : count
        var figures = Comparison.Figures(count: all, watchedNs: watchedNs, lengthsNs: lengthsNs)
        figures.dispersion = dispersion
        return figures
    }
}

extension StallOutline {
    /// Its duration without the time in which it waited for a processor, as far as that was measured.
    var runningNs: Int64 {
        let share = min(max(runDelayShare ?? 0, 0), 1)
        return Int64(saturating: Double(durationNs) * (1 - share))
    }
}
