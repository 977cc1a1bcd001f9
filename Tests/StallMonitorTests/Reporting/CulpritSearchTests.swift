import StallReports
import TestSupport
import Testing

@testable import StallMonitor

/// The same fault, however few samples there are and whenever they were taken.
@Suite("The culprit, for any samples")
struct CulpritSearchTests {
    private static let runs = 50

    private struct Outcome {
        var right = 0
        var fingerprints: [Fingerprint: Int] = [:]
        var culprits: [String: Int] = [:]

        var equal: Int { fingerprints.values.max() ?? 0 }
    }

    private func play(_ fault: SimulatedFault, _ seed: UInt64) -> Outcome {
        var outcome = Outcome()
        for run in 0..<Self.runs {
            var random = SplitMix64(seed: seed &+ UInt64(run) &* 7919)
            let book = fault.book(samples: .random(in: 3...12, using: &random), &random)
            let culprit = book.culprit?.symbol ?? "nobody"
            if culprit == fault.culprit { outcome.right += 1 }
            outcome.culprits[culprit, default: 0] += 1
            let name = Fingerprint.make(kind: .blocked, fault: book.culpritFrames, modules: [], executable: nil)
            outcome.fingerprints[name, default: 0] += 1
        }
        return outcome
    }

    @Test(
        "Thirty kinds of faults, each seen fifty times through three to twelve samples",
        arguments: [1, 2] as [UInt64]
    )
    func simulation(seed: UInt64) {
        let outcomes = SimulatedFault.all.map { ($0, play($0, seed)) }
        let total = outcomes.count * Self.runs
        let (equal, right) = (outcomes.reduce(0) { $0 + $1.1.equal }, outcomes.reduce(0) { $0 + $1.1.right })
        for (fault, outcome) in outcomes where outcome.equal < Self.runs || outcome.right < Self.runs {
            print("\(fault.name): equal \(outcome.equal), right \(outcome.right) of \(Self.runs): \(outcome.culprits)")
        }
        print(
            "seed \(seed): \(outcomes.count) faults: fingerprint equal in \(equal), culprit right in \(right) of \(total)"
        )
        #expect(outcomes.count >= 30)
        #expect(equal * 100 >= total * 99, "seed \(seed): \(equal) of \(total)")
        #expect(right * 100 >= total * 98, "seed \(seed): \(right) of \(total)")
    }
}
