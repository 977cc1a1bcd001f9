import StallReading
package import StallReports
import TapeDecoding

/// What a store needs of a report.
package struct ArrivedOutline: Hashable {
    let id: ULID
    let state: StallState
    let isProvisional: Bool
    let startedAt: Timestamp
    /// The end, or the moment until which the stall is known to have lasted.
    let lastKnownMoment: Timestamp
    let durationNs: Int64
    /// Whether its durations are possible: readers reject a report in which one is negative.
    let isPossible: Bool
    let repeats: Repeats
    let service: String?
    let release: String?
    let host: String
    let label: String
    let verdict: Verdict
    let fingerprint: String
    let aliases: [String]
    /// The function to inspect, or why there is none.
    package let culprit: String
    /// The culprit's file and line. Nil if they are not known.
    let place: String?

    /// Stalls that were only counted.
    struct Repeats: Hashable {
        var count = 0
        var totalNs: Int64 = 0
        var longestNs: Int64 = 0
    }

    package init(_ report: StallReport) {
        self.init(
            StallOutline(report),
            isProvisional: report.isProvisional == true,
            bounds: [report.durationMinNs, report.durationMaxNs]
        )
    }

    /// - Parameter bounds: The least and the greatest duration, as far as they are known.
    private init(_ stall: StallOutline, isProvisional: Bool, bounds: [Int64?]) {
        (id, state, self.isProvisional) = (stall.id, stall.state, isProvisional)
        isPossible = Self.arePossible([stall.durationNs] + bounds)
        (startedAt, lastKnownMoment, durationNs) = (stall.startedAt, stall.lastKnownMoment, stall.durationNs)
        let repeats = stall.repeats
        self.repeats = Repeats(
            count: repeats?.count ?? stall.suppressed,
            totalNs: repeats?.totalNs ?? 0,
            longestNs: repeats?.longestNs ?? 0
        )
        (service, release, host, label) = (stall.service, stall.release, stall.host, stall.label)
        (verdict, fingerprint) = (stall.verdict, stall.fingerprint.rawValue)
        aliases = stall.aliases?.map(\.rawValue) ?? []
        (culprit, place) = (stall.culpritText, stall.culprit?.place)
    }

    private static func arePossible(_ durations: [Int64?]) -> Bool { durations.allSatisfy { $0 ?? 0 >= 0 } }

    // MARK: From the tape

    /// Reads only these parts of a document that is known to be a report. Nil if a value is unusual.
    init?(checked report: TapeDecoder) {
        if let culprit = report["culprit"], let name = (culprit["function"] ?? culprit["symbol"])?.text {
            self.init(checked: report, culprit, name)
        } else {
            // It is named by its place, or by the reason why there is no stack: another decoder knows how.
            guard let stall = try? StallOutline(from: report) else { return nil }
            self.init(stall, isProvisional: report["provisional"]?.truth == true, bounds: Self.bounds(of: report))
        }
    }

    private init?(checked report: TapeDecoder, _ culprit: TapeDecoder, _ name: String) {
        guard let id = report["id"]?.text.flatMap({ ULID($0) }), let state = report["state"]?.text,
            let startedAt = report["started_at"]?.moment, let durationNs = report["duration_ns"]?.whole,
            let host = report["host"]?["name"]?.text, let label = report["watched"]?["label"]?.text,
            let verdict = report["cause"]?["verdict"]?.text, let fingerprint = report["fingerprint"]?.text
        else { return nil }
        (self.id, self.state) = (id, StallState(rawValue: state))
        isProvisional = report["provisional"]?.truth == true
        (self.startedAt, self.durationNs) = (startedAt, durationNs)
        isPossible = Self.arePossible([durationNs] + Self.bounds(of: report))
        lastKnownMoment = report["ended_at"]?.moment ?? startedAt.advanced(byNanoseconds: max(0, durationNs))
        repeats = Repeats(checked: report)
        let service = report["service"]
        (self.service, release) = (service?["name"]?.text, service?["version"]?.text)
        (self.host, self.label) = (host, label)
        (self.verdict, self.fingerprint) = (Verdict(rawValue: verdict), fingerprint)
        aliases = report["aliases"]?.elements.compactMap(\.text) ?? []
        self.culprit = name
        place =
            culprit["file"]?.text.flatMap { file in
                StallReport.Culprit(file: file, line: culprit["line"]?.whole.map(Int.init), stack: 0, frame: 0).place
            }
    }
}

extension ArrivedOutline {
    private static func bounds(of report: TapeDecoder) -> [Int64?] {
        [report["duration_min_ns"]?.whole, report["duration_max_ns"]?.whole]
    }
}

extension ArrivedOutline.Repeats {
    fileprivate init(checked report: TapeDecoder) {
        guard let repeats = report["repeats"] else {
            count = report["suppressed"]?.whole.map(Int.init) ?? 0
            return
        }
        count = repeats["count"]?.whole.map(Int.init) ?? 0
        totalNs = repeats["total_ns"]?.whole ?? 0
        longestNs = repeats["longest_ns"]?.whole ?? 0
    }
}
