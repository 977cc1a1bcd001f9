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
    public var repeats: [ULID: StallReport.Repeats] {
        let told = reports.compactMap(\.repeats) + runs.flatMap { $0.repeated ?? [] }.map(\.repeats)
        return told.reduce(into: [:]) { found, repeats in
            guard let report = repeats.report else { return }
            found[report] = found[report].map { $0.joined(by: repeats) } ?? repeats
        }
    }
}
