/// The likely reason for a stall, and what to do about it. It claims no more than the report's evidence supports.
public struct Advice: Hashable, Sendable {
    public let likely: String
    public let remedy: String

    /// One rule. All its conditions must hold; of several names in one list, any.
    package struct Rule: Sendable {
        package let name: String
        var verdicts: [Verdict] = []
        /// The system call in which the thread was.
        var calls: [String] = []
        /// Substrings of the name of a function on the stalled thread's stack.
        var functions: [String] = []
        var locks: [LockKind] = []
        /// The kind of descriptor on which the call waited.
        var descriptors: [DescriptorKind] = []
        /// Whether the lock's owner must be known.
        var hasOwner = false
        /// Whether the cgroup must have been throttled.
        var isThrottled = false
        let likely: String
        let remedy: String
    }

    /// The first matching rule: special rules precede those for a verdict alone.
    public static func of(_ report: StallReport) -> Advice? {
        rules.first { $0.fits(report) }.map { Advice(likely: $0.likely, remedy: $0.remedy) }
    }

    /// The rule's name, for tests.
    package static func ruleName(for report: StallReport) -> String? { rules.first { $0.fits(report) }?.name }
}

extension Advice.Rule {
    func fits(_ report: StallReport) -> Bool {
        let cause = report.cause
        if !verdicts.isEmpty, !verdicts.contains(cause.verdict.canonical) { return false }
        if !calls.isEmpty, !calls.contains(cause.systemCall?.name ?? "") { return false }
        if !locks.isEmpty, !(cause.lock.map { locks.contains($0.kind) } ?? false) { return false }
        if hasOwner, cause.lock?.owner == nil { return false }
        if isThrottled, (cause.evidence?.processors?.throttledPeriods ?? 0) <= 0 { return false }
        if !descriptors.isEmpty {
            let found = (cause.systemCall?.descriptors ?? []).map(\.kind)
            guard found.contains(where: descriptors.contains) else { return false }
        }
        return functions.isEmpty || isOnStack(report)
    }

    /// Checks the most frequent stack of the stalled thread.
    private func isOnStack(_ report: StallReport) -> Bool {
        guard let stack = report.stacks.filter({ $0.role == .stalled }).max(by: { $0.count < $1.count }) else {
            return false
        }
        return stack.frames.prefix(256).contains { frame in
            let name = frame.function ?? frame.symbol ?? ""
            return functions.contains { name.contains($0) }
        }
    }
}
