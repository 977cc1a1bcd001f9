/// Later findings about a report's frames, and what follows from them. Nothing is removed except statements that were made
/// because names were missing.
public struct ReportAmendment: Hashable, Sendable {
    /// The changes to one frame.
    public struct Frame: Hashable, Sendable {
        /// Inserted before it.
        public var inlined: [StallReport.Frame]
        /// Replaces it: the same frame with more data.
        public var frame: StallReport.Frame

        /// Creates one from these values, which are not checked.
        public init(inlined: [StallReport.Frame] = [], frame: StallReport.Frame) {
            (self.inlined, self.frame) = (inlined, frame)
        }
    }

    /// The identity of the report's fault, determined again with names.
    public struct Identity: Hashable, Sendable {
        /// Based on the names. The former one becomes an alias.
        public var fingerprint: Fingerprint
        /// Whether names are still missing.
        public var isProvisional: Bool
        /// The cause in a sentence.
        public var summary: String

        /// Creates one from these values, which are not checked.
        public init(fingerprint: Fingerprint, isProvisional: Bool, summary: String) {
            (self.fingerprint, self.isProvisional, self.summary) = (fingerprint, isProvisional, summary)
        }
    }

    /// For each of the report's stacks, one element per frame.
    public var stacks: [[Frame]]
    /// For each of the report's stacks, one element per awaiting function. May be shorter: the rest is unchanged.
    public var awaiting: [[Frame]]
    /// The culprit, with its new indices.
    public var culprit: StallReport.Culprit?
    /// The new identity. Nil if it is unchanged.
    public var identity: Identity?

    /// Creates an amendment. It is not checked that it fits the report.
    public init(
        stacks: [[Frame]],
        awaiting: [[Frame]] = [],
        culprit: StallReport.Culprit?,
        identity: Identity? = nil
    ) {
        (self.stacks, self.awaiting, self.culprit, self.identity) = (stacks, awaiting, culprit, identity)
    }

    /// The report with the amendment.
    public func applied(to report: StallReport) -> StallReport {
        var report = report
        for (index, frames) in zip(report.stacks.indices, stacks) {
            report.stacks[index].frames = frames.flatMap { $0.inlined + [$0.frame] }
            if let from = report.stacks[index].async?.from {
                report.stacks[index].async?.from = from &+ Self.inserted(in: frames, through: from)
            }
            if let after = report.stacks[index].leftOut?.after {
                report.stacks[index].leftOut?.after = after &+ Self.inserted(in: frames, through: after &- 1)
            }
        }
        for (index, frames) in zip(report.stacks.indices, awaiting) {
            report.stacks[index].async?.frames = frames.flatMap { $0.inlined + [$0.frame] }
        }
        report.culprit = culprit
        if let identity { Self.apply(identity, to: &report) }
        return report
    }

    private static func apply(_ identity: Identity, to report: inout StallReport) {
        if identity.fingerprint != report.fingerprint {
            let before = (report.aliases ?? []) + [report.fingerprint]
            report.aliases = before.filter { $0 != identity.fingerprint }
        }
        report.fingerprint = identity.fingerprint
        report.isProvisional = identity.isProvisional ? true : nil
        report.cause.summary = identity.summary
        let atCulprit = report.workersAtCulprit
        report.pool?.atCulprit = atCulprit
        report.monitor.symbolicationNote = report.missingNames
    }

    /// The number of positions by which frames after a frame move.
    private static func inserted(in frames: [Frame], through last: Int) -> Int {
        zip(frames.indices, frames).reduce(0) { $0 + ($1.0 <= last ? $1.1.inlined.count : 0) }
    }
}
