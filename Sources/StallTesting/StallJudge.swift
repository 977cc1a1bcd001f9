import StallReports

/// Whose a stall is, for one test. Decided from values alone.
enum StallFinding: Equatable {
    /// The test's: its task stood, or its function.
    case own
    /// It fell into the test's time, and nothing tells whose it is: it may be any of these.
    case unclear(among: [String])
    /// It was so long only because the machine gave the thread no processor.
    case machine

    /// - Parameters:
    ///   - scope: what is judged.
    ///   - scopes: all there were meanwhile, `scope` among them.
    /// - Returns: nil if the stall is none of `scope`'s, or not too long for it.
    static func of(_ stall: StallReport, for scope: TestScope, among scopes: [TestScope]) -> StallFinding? {
        let limit = scope.limit.nanoseconds
        guard scope.overlap(with: stall) > limit else { return nil }
        var owners = scopes.filter { $0.isTask(of: stall) }
        if owners.isEmpty { owners = scopes.filter { $0.isCaller(in: stall) } }
        if owners.isEmpty {
            // Whoever computes takes a worker for as long: it is no stall of any test whose work it is not.
            guard stall.watched.type != .taskPool else { return nil }
        } else {
            guard owners.contains(where: { $0.number == scope.number }) else { return nil }
        }
        guard Double(scope.overlap(with: stall)) * stall.ownShare > Double(limit) else { return .machine }
        if !owners.isEmpty { return .own }
        let suspects = scopes.filter { $0.overlap(with: stall) > $0.limit.nanoseconds }
        return .unclear(among: suspects.map(\.place.name).sorted())
    }
}

extension StallReport {
    /// The part of it that the thread did not wait for a processor, 0 to 1. Where that was not measured, all of it.
    var ownShare: Double {
        if cause.verdict == .paused { return 0 }
        return 1 - (cause.evidence?.runDelayShare ?? 0)
    }
}

extension Duration {
    /// Held at the ends of `Int64`.
    var nanoseconds: Int64 {
        let count = self / .nanoseconds(1)
        return count >= 9.2e18 ? .max : Int64(max(count, 0))
    }
}
