import FoundationEssentials
import StallReports

/// The injected stalls and the reports about them.
struct DemoResult: Codable, Sendable {
    struct Row: Codable, Sendable {
        var stall: DemoStall
        /// The function that stalled.
        var function: String
        /// The duration of the stall, measured by the stalled code.
        var injectedNs: Int64
        /// The number of reports of this stall; the expected number is one.
        var reports: Int
        /// From the beginning of the stall to the beginning of the report.
        var detectionNs: Int64?
        var durationNs: Int64?
        var culprit: String?
        /// What was reported as stalled: `main`, or a thread's name.
        var watched: String?
        var watchedType: WatchedType?
        var verdict: String?
        var reportID: String?

        var passed: Bool {
            reports == 1 && culprit?.contains("\(function)(") == true && watchedType == stall.watchedType
        }
    }

    struct Control: Codable, Sendable {
        var durationNs: Int64
        var requests: Int
        /// The expected number is zero.
        var reports: Int

        var passed: Bool { reports == 0 && requests > 0 }
    }

    var control: Control
    var stalls: [Row]
    /// Reports that belong to no injected stall.
    var unexpected: Int
    var directory: String

    var passed: Bool {
        control.passed && unexpected == 0 && stalls.count == DemoStall.allCases.count && stalls.allSatisfy(\.passed)
    }

    func json() throws -> String {
        struct Document: Encodable {
            var passed: Bool
            var control: Control
            var stalls: [Row]
            var unexpected: Int
            var directory: String
        }
        let encoder = JSONEncoder()
        encoder.keyEncodingStrategy = .convertToSnakeCase
        encoder.outputFormatting = [.prettyPrinted, .sortedKeys, .withoutEscapingSlashes]
        let document = Document(
            passed: passed,
            control: control,
            stalls: stalls,
            unexpected: unexpected,
            directory: directory
        )
        return String(decoding: try encoder.encode(document), as: UTF8.self)
    }
}

extension DemoResult {
    /// Compares the injected stalls with all reports that are in the directory at the end.
    init(_ injected: [StallReceipt], control: Control, reports: [StallReport], directory: String) {
        var unclaimed = reports
        stalls = injected.map { receipt in
            let own = unclaimed.filter { $0.overlaps(receipt) }
            unclaimed.removeAll { $0.overlaps(receipt) }
            return Row(receipt, own)
        }
        self.control = control
        unexpected = unclaimed.count - control.reports
        self.directory = directory
    }
}

extension DemoResult.Row {
    init(_ receipt: StallReceipt, _ reports: [StallReport]) {
        let report = reports.first
        stall = receipt.stall
        function = receipt.stall.culprit
        injectedNs = receipt.endedAt.nanoseconds(since: receipt.startedAt)
        self.reports = reports.count
        detectionNs = report?.detectedAt.nanoseconds(since: receipt.startedAt)
        durationNs = report?.durationNs
        culprit = report?.culpritName
        (watched, watchedType) = (report?.watched.label, report?.watched.type)
        verdict = report?.cause.verdict.rawValue
        reportID = report.map { "\($0.id)" }
    }
}

extension StallReport {
    fileprivate func overlaps(_ receipt: StallReceipt) -> Bool {
        let end = endedAt ?? startedAt.advanced(byNanoseconds: durationNs)
        return startedAt < receipt.endedAt && receipt.startedAt < end
    }
}
