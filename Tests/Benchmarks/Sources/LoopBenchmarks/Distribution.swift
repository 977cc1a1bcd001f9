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

/// What all rounds of one subject took, in nanoseconds per operation.
struct Times: Sendable {
    let wall: Distribution
    let cpu: Distribution
}

/// One workload, pinned or not.
struct WorkloadResult {
    let workload: Workload
    let cores: Harness.Cores
    /// For each subject.
    let times: [Times]

    func times(of subject: String) -> Times? {
        workload.subjects.firstIndex { $0.name == subject }.map { times[$0] }
    }
}
