extension RunRecord {
    /// A fault whose stalls were counted since its last report.
    public struct Repeated: Codable, Hashable, Sendable {
        /// Of the stalls, as far as they were looked at.
        public var fingerprint: Fingerprint
        /// Those that stand in no report yet: the fault's next one takes them over.
        public var repeats: StallReport.Repeats

        /// Nothing is checked.
        public init(fingerprint: Fingerprint, repeats: StallReport.Repeats) {
            (self.fingerprint, self.repeats) = (fingerprint, repeats)
        }
    }
}

extension ReportReader.Contents {
    /// For each report, the stalls like it that came after it and were only counted: what the fault's next report says, or while there is
    /// none the run record.
    public var repeats: [ULID: StallReport.Repeats] { repeatsByReport(reports.lazy.compactMap(\.repeats), runs) }
}

extension ReportReader.Overview {
    /// As ``ReportReader/Contents/repeats``.
    public var repeats: [ULID: StallReport.Repeats] { repeatsByReport(stalls.lazy.compactMap(\.repeats), runs) }
}

private func repeatsByReport(
    _ told: some Sequence<StallReport.Repeats>,
    _ runs: [RunRecord]
) -> [ULID: StallReport.Repeats] {
    var found: [ULID: StallReport.Repeats] = [:]
    for repeats in [Array(told), runs.flatMap { $0.repeated ?? [] }.map(\.repeats)].joined() {
        guard let report = repeats.report else { continue }
        found[report] = found[report].map { $0.joined(by: repeats) } ?? repeats
    }
    return found
}
