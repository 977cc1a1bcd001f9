import Foundation
import HTTPTypes
import Hummingbird

/// How reports are encoded in a request.
enum IngestFormat: Sendable {
    /// `POST /v1/reports`: full reports and run records, one JSON document per line.
    case lines
    /// `POST /v1/logs`: OpenTelemetry log records in OTLP over HTTP, encoded as JSON.
    case telemetry

    /// The action's name in the audit log.
    var action: String { self == .lines ? "ingest" : "ingest-logs" }

    /// - Returns: How the body is compressed.
    /// - Throws: If it is compressed in another way, or if the content type is missing or another one. Browsers send some types to other sites without asking, so the
    ///   type must be named.
    func coding(_ request: Request) throws(Refusal) -> BodyCoding {
        let type = request.headers[.contentType]?.split(separator: ";").first?.trimmingCharacters(in: .whitespaces)
        guard let type, types.contains(type.lowercased()) else {
            throw Refusal(
                .unsupportedMediaType,
                self == .lines
                    ? "send one JSON document a line, as application/x-ndjson"
                    : "send OpenTelemetry's JSON encoding, as application/json; protocol buffers are not read"
            )
        }
        guard let coding = BodyCoding(rawValue: request.headers[.contentEncoding]?.lowercased() ?? "identity") else {
            throw Refusal(
                .unsupportedMediaType,
                "send it packed by gzip or zstd, or not packed",
                [.acceptEncoding: "gzip, zstd"]
            )
        }
        return coding
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

    /// The answer that OTLP specifies. `partialSuccess` is present only if something was rejected.
    private struct PartialSuccess: Encodable {
        var partialSuccess: Counts?

        struct Counts: Encodable {
            /// This encoding writes 64-bit numbers as strings.
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

/// What happened to a request's records.
struct IngestReceipt: Codable, Hashable, Sendable {
    /// Records that are on the disk, including those that were there before.
    var accepted: Int
    /// Records that are not valid reports. They would be refused again.
    var refused: Int
    /// Why they were refused, for the first of them.
    var reasons: [Reason]

    struct Reason: Codable, Hashable, Sendable {
        /// Counted from 1. For log records, the number of the record in the request.
        var line: Int
        var reason: String
    }
}
