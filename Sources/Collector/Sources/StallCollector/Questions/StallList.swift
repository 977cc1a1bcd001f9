import Hummingbird
import StallReports
import StallStore

/// The answer of `/api/v1/stalls`.
struct StallsDocument: Encodable {
    var schema = "stall-list/1"
    var stalls: [Row]
    /// The value of `after` with which a client gets the stalls that follow. Nil: these are the last ones.
    var next: String?

    init(_ stalls: [StoredStall], limit: Int) {
        self.stalls = stalls.map { Row($0) }
        next = stalls.count < limit ? nil : stalls.last?.place.text
    }

    struct Row: Encodable {
        var id: ULID
        var fingerprint: Fingerprint
        var startedAt: Timestamp
        var durationNs: Int64
        var state: String
        var verdict: String
        var service: String
        var release: String
        var host: String
        var label: String
        var culprit: String

        init(_ stall: StoredStall) {
            (id, fingerprint, startedAt, durationNs) = (stall.id, stall.fingerprint, stall.startedAt, stall.durationNs)
            state = stall.isOver ? "over" : "ongoing"
            (verdict, service, release) = (stall.verdict.rawValue, stall.service, stall.release)
            (host, label, culprit) = (stall.host, stall.label, stall.culprit)
        }

        private enum CodingKeys: String, CodingKey {
            case id, fingerprint, state, verdict, service, release, host, label, culprit
            case startedAt = "started_at"
            case durationNs = "duration_ns"
        }
    }
}

extension StoredReport.Place {
    /// The nanoseconds since 1970, and the id: `1781526896000000000-01KV5D3G8H…`.
    fileprivate var text: String { "\(startedAt.sinceEpoch)-\(id)" }

    /// The place after which a client continues, in the order of the list. Nil: at its beginning.
    init?(after request: Request) throws(Refusal) {
        guard let text = request.uri.queryParameters["after"] else { return nil }
        let parts = text.split(separator: "-", omittingEmptySubsequences: false).map(String.init)
        guard parts.count == 2, let start = Int64(parts[0]), start >= 0, let id = ULID(parts[1]) else {
            throw Refusal(.badRequest, "'after' is the 'next' of the answer before")
        }
        self.init(startedAt: Timestamp(sinceEpoch: start), id: id)
    }
}
