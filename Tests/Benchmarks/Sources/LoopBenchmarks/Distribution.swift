/// Figures of the same kind, one for each round. Sorting is sufficient for a few hundred of them.
struct Distribution: Sendable {
    let sorted: [Double]

    init(_ values: [Double]) { sorted = values.sorted() }

    var median: Double { at(0.5) }
    /// With fewer than a hundred rounds this is the maximum.
    var p99: Double { at(0.99) }
    /// The time without interruptions: on a busy machine the most stable of the three.
    var best: Double { sorted.first ?? .nan }
    var count: Int { sorted.count }

    /// The nearest-rank percentile.
    private func at(_ share: Double) -> Double {
        guard !sorted.isEmpty else { return .nan }
        let rank = (share * Double(sorted.count)).rounded(.up)
        return sorted[min(sorted.count - 1, max(0, Int(rank) - 1))]
    }
}

/// The times of all rounds of one subject, in nanoseconds per operation.
struct Times: Sendable {
    let wall: Distribution
    let cpu: Distribution
}

/// One workload, pinned or not.
struct WorkloadResult {
    let workload: Workload
    let cores: Harness.Cores
    /// One element for each subject.
    let times: [Times]

    func times(of subject: String) -> Times? {
        workload.subjects.firstIndex { $0.name == subject }.map { times[$0] }
    }

    /// A subject's median divided by ours. Nil if ours is not part of the workload, or was not chosen.
    func ratioToOurs(_ index: Int) -> Double? {
        times(of: Catalogue.ours).map { times[index].wall.median / $0.wall.median }
    }
}
