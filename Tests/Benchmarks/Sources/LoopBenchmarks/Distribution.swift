/// Figures of the same kind, one for each round. A sort is all that a few hundred of them need.
struct Distribution: Sendable {
    let sorted: [Double]

    init(_ values: [Double]) { sorted = values.sorted() }

    var median: Double { at(0.5) }
    /// With fewer than a hundred rounds that is the worst.
    var p99: Double { at(0.99) }
    /// What it takes when nothing else comes between: on a busy machine the steadiest of the three.
    var best: Double { sorted.first ?? .nan }
    var count: Int { sorted.count }

    /// By nearest rank.
    private func at(_ share: Double) -> Double {
        guard !sorted.isEmpty else { return .nan }
        let rank = (share * Double(sorted.count)).rounded(.up)
        return sorted[min(sorted.count - 1, max(0, Int(rank) - 1))]
    }
}

/// One workload, pinned or not: a distribution for each subject, in nanoseconds per operation.
struct WorkloadResult {
    let workload: Workload
    let cores: Harness.Cores
    let times: [Distribution]

    func times(of subject: String) -> Distribution? {
        workload.subjects.firstIndex { $0.name == subject }.map { times[$0] }
    }
}
