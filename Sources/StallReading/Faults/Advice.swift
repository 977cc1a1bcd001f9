public import StallReports

/// The likely reason for a stall, and what to do about it. It claims no more than the report's evidence supports.
public struct Advice: Hashable, Sendable {
    /// The likely reason, as a sentence.
    public let likely: String
    /// What to do about it, as a sentence.
    public let remedy: String

    /// One rule. All its conditions must hold. A list of names holds if one of them matches.
    package struct Rule: Sendable {
        package let name: String
        var verdicts: [Verdict] = []
        /// The system call in which the thread was.
        var calls: [String] = []
        /// Substrings of the name of a function on the stalled thread's stack.
        var functions: [String] = []
        /// How the file names of libraries begin that sleep for this reason only. They hold where `functions` would, had the library's
        /// functions names.
        var sleepers: [String] = []
        var locks: [LockKind] = []
        /// The kind of descriptor on which the call waited.
        var descriptors: [DescriptorKind] = []
        /// Whether the lock's owner must be known.
        var hasOwner = false
        /// Whether the cgroup must have been throttled.
        var isThrottled = false
        let likely: String
        let remedy: String
        /// The remedy with the means of Swift. It replaces `remedy` if the stack shows Swift.
        var swiftRemedy: String?
    }

    /// The first matching rule: special rules precede those for a verdict alone.
    public static func of(_ report: StallReport) -> Advice? {
        // A report that was made of a dead process's live record alone has no stack for that reason, and for none that a rule names.
        guard report.state != .terminated || !report.stacks.isEmpty else { return nil }
        return rules.first { $0.fits(report) }.map { rule in
            Advice(likely: rule.likely, remedy: report.showsSwift ? rule.swiftRemedy ?? rule.remedy : rule.remedy)
        }
    }
}

extension StallReport {
    /// Whether there is a function of Swift, or of its runtime, on a stack.
    fileprivate var showsSwift: Bool {
        if modules.contains(where: { fileName(ofPath: $0.path).hasPrefix("libswift") }) { return true }
        return stacks.contains { stack in
            stack.frames.contains { frame in
                let symbol = frame.symbol ?? frame.function ?? ""
                return ["$s", "$S", "swift_"].contains(where: symbol.hasPrefix)
            }
        }
    }
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
        guard !functions.isEmpty else { return true }
        let stalled = report.stacks.filter { $0.role == .stalled }
        guard let stack = stalled.max(by: { $0.count < $1.count }) else { return false }
        return isOn(stack) || isSleep(on: stack, of: report)
    }

    private func isOn(_ stack: StallReport.Stack) -> Bool {
        stack.frames.prefix(256).contains { frame in
            let name = frame.function ?? frame.symbol ?? ""
            return functions.contains { name.contains($0) }
        }
    }

    /// Whether one of the sleepers has called the C library to sleep.
    private func isSleep(on stack: StallReport.Stack, of report: StallReport) -> Bool {
        guard report.cause.systemCall?.name?.hasSuffix("nanosleep") == true else { return false }
        let files = stack.frames.lazy.map { fileName(ofPath: report.modules.module(of: $0)?.path ?? "") }
        let caller = files.first { !$0.hasPrefix("libc.so") && !$0.hasPrefix("libc-") }
        return caller.map { sleepers.contains(where: $0.hasPrefix) } ?? false
    }
}
