import Foundation
import HTTPTypes
import Hummingbird

/// How reports are encoded in a request.
enum IngestFormat: Sendable {
    /// `POST /v1/reports`: full reports and run records, one JSON document a line.
    case lines
    /// `POST /v1/logs`: OpenTelemetry log records, by OTLP over HTTP in JSON.
    case telemetry

    /// The action's name in the audit log.
    var action: String { self == .lines ? "ingest" : "ingest-logs" }

    /// - Returns: whether the body is packed by gzip.
    /// - Throws: if the body is of another kind. Browsers send other kinds to other sites without asking, so the kind has to be named.
    func isPacked(_ request: Request) throws(Refusal) -> Bool {
        let type = request.headers[.contentType]?.split(separator: ";").first?.trimmingCharacters(in: .whitespaces)
        guard let type, types.contains(type.lowercased()) else {
            throw Refusal(
                .unsupportedMediaType,
                self == .lines
                    ? "send one JSON document a line, as application/x-ndjson"
                    : "send OpenTelemetry's JSON encoding, as application/json; protocol buffers are not read"
            )
        }
        let coding = request.headers[.contentEncoding]?.lowercased() ?? "identity"
        guard ["gzip", "identity"].contains(coding) else {
            throw Refusal(.unsupportedMediaType, "send it packed by gzip, or not packed", [.acceptEncoding: "gzip"])
        }
        return coding == "gzip"
    }

    private var types: Set<String> {
        self == .lines ? ["application/x-ndjson", "application/jsonl", "application/json"] : ["application/json"]
    }

    func answer(_ receipt: IngestReceipt) throws -> Response {
        switch self {
        case .lines: try JSONAnswer.make(receipt, status: .accepted)
        case .telemetry: try JSONAnswer.make(PartialSuccess(receipt))
        }
    }

    /// What an OTLP receiver answers. `partialSuccess` is there only if something was rejected.
    private struct PartialSuccess: Encodable {
        var partialSuccess: Counts?

        struct Counts: Encodable {
            /// 64-bit numbers are strings in this encoding.
            var rejectedLogRecords: String
            var errorMessage: String
        }

        init(_ receipt: IngestReceipt) {
            guard let first = receipt.reasons.first else { return }
            partialSuccess = Counts(
                rejectedLogRecords: "\(receipt.refused)",
                errorMessage: "log record \(first.line): \(first.reason)"
            )
        }
    }
}

/// What became of a request's records.
struct IngestReceipt: Codable, Hashable, Sendable {
    /// Records that are on the disk, including those that were there before.
    var accepted: Int
    /// Records that are no reports. They would be refused again.
    var refused: Int
    /// Of the first of them.
    var reasons: [Reason]

    struct Reason: Codable, Hashable, Sendable {
        /// From 1. Of log records: the record's number in the request.
        var line: Int
        var reason: String
    }
}
