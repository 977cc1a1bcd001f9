import RunLoopKit
import StallReports

/// The answer: the status and the line of JSON.
struct HealthAnswer: Hashable {
    let status: Int
    let body: [UInt8]

    private struct Document: Encodable {
        let schema = "stall-health/1"
        let state: String
        let stalls: [Stall]
        let problems: [String]
    }

    private struct Stall: Encodable {
        let type: String
        let label: String
        let lastingMs: Int64

        private enum CodingKeys: String, CodingKey {
            case type, label
            case lastingMs = "lasting_ms"
        }
    }

    /// How many stalls are listed: there may be as many as there are loops.
    private static let limit = 100

    init(_ health: StallMonitor.Health, failsAfter: Duration) {
        let fails = health.stalls.contains { $0.lasting >= failsAfter }
        status = fails ? 503 : 200
        let document = Document(
            state: health.state.rawValue,
            stalls: health.stalls.prefix(Self.limit).map { stall in
                Stall(
                    type: stall.type.rawValue,
                    label: VisibleText.of(stall.label, limit: 200),
                    lastingMs: Int64(clamping: stall.lasting.nanoseconds / 1_000_000)
                )
            },
            problems: health.problems.map(\.description)
        )
        // The document contains only texts and numbers, so it can always be encoded.
        body = (try? ReportJSON.encode(document)) ?? Array("{}\n".utf8)
    }
}

/// The request of a health probe, as far as it has arrived.
enum HealthRequest: Hashable {
    /// More is expected.
    case incomplete
    /// - Parameter wantsBody: false for HEAD.
    case health(wantsBody: Bool)
    case otherPath(wantsBody: Bool)
    case otherMethod
    case malformed

    /// Longer requests are not a probe's.
    static let limit = 4096

    /// Reads the first line (RFC 9112, section 3). The rest of a request is not needed.
    init(_ bytes: [UInt8]) {
        guard bytes.endsHeader else {
            self = bytes.count >= Self.limit ? .malformed : .incomplete
            return
        }
        let line = bytes.prefix { $0 != UInt8(ascii: "\r") && $0 != UInt8(ascii: "\n") }
        let words = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard words.count == 3, words[2].starts(with: "HTTP/1.".utf8) else {
            self = .malformed
            return
        }
        let path = words[1].prefix { $0 != UInt8(ascii: "?") }
        let isGet = words[0].elementsEqual("GET".utf8)
        if !isGet, !words[0].elementsEqual("HEAD".utf8) {
            self = .otherMethod
        } else {
            self = path.elementsEqual("/health".utf8) ? .health(wantsBody: isGet) : .otherPath(wantsBody: isGet)
        }
    }

    /// The complete response. Nil while more is expected.
    func response(_ answer: () -> HealthAnswer) -> [UInt8]? {
        switch self {
        case .incomplete: return nil
        case .health(let wantsBody):
            let answer = answer()
            let reason = answer.status == 200 ? "OK" : "Service Unavailable"
            return Self.response("\(answer.status) \(reason)", answer.body, wantsBody: wantsBody)
        case .otherPath(let wantsBody):
            return Self.response("404 Not Found", Array("GET /health\n".utf8), wantsBody: wantsBody, isText: true)
        case .otherMethod:
            return Self.response(
                "405 Method Not Allowed",
                Array("GET /health\n".utf8),
                "Allow: GET, HEAD\r\n",
                isText: true
            )
        case .malformed: return Self.response("400 Bad Request", [], isText: true)
        }
    }

    private static func response(
        _ status: String,
        _ body: [UInt8],
        _ field: String = "",
        wantsBody: Bool = true,
        isText: Bool = false
    ) -> [UInt8] {
        let head =
            "HTTP/1.1 \(status)\r\nContent-Type: \(isText ? "text/plain" : "application/json")\r\n"
            + "Content-Length: \(body.count)\r\n\(field)Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        return Array(head.utf8) + (wantsBody ? body : [])
    }
}

extension [UInt8] {
    /// Whether the empty line that ends the header has arrived.
    fileprivate var endsHeader: Bool {
        var lineLength = 0
        for byte in self where byte != UInt8(ascii: "\r") {
            guard byte == UInt8(ascii: "\n") else {
                lineLength += 1
                continue
            }
            if lineLength == 0 { return true }
            lineLength = 0
        }
        return false
    }
}
