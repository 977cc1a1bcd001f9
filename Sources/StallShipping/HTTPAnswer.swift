import Foundation
import StallReports
import WebRequests

/// Interprets an HTTP answer.
enum HTTPAnswer {
    /// - Parameters:
    ///   - body: Its first bytes at least.
    ///   - isCollector: Whether a collector is expected at the address.
    ///   - path: Of the request, after the address.
    ///   - hasToken: Whether the request had one.
    static func read(
        _ head: WebRequest.Head,
        _ body: [UInt8],
        isCollector: Bool,
        path: String = "",
        hasToken: Bool = true
    ) -> Answer {
        let status = head.status
        let retryAfter = head.fields["retry-after"].flatMap { delay($0, now: Date()) }
        switch status {
        case 200..<300:
            // Not by Foundation's decoder, which ends the process at some numbers of hundreds of digits (Swift 6.3).
            let reply: Reply? = try? ReportJSON.decode(body)
            // A proxy's page for signing in, or another server: nothing was stored.
            guard !isCollector || reply?.accepted != nil else {
                return .unavailable("it does not answer as a collector does (\(status))", retryAfter: retryAfter)
            }
            return .accepted(rejected: reply?.rejected ?? 0, message: reply?.message ?? "")
        case 404, 405, 501: return .unknownPath("\(status)")
        case 400, 411, 413, 414, 415, 422: return .refused("\(status)\(reason(body))")
        default:
            return .unavailable(obstacle(head, body, path: path, hasToken: hasToken), retryAfter: retryAfter)
        }
    }

    /// Why the request was not taken, although it could be taken later.
    private static func obstacle(_ head: WebRequest.Head, _ body: [UInt8], path: String, hasToken: Bool) -> String {
        switch head.status {
        case 300..<400:
            // Requests add the path to the address again.
            let target = head.fields["location"].map { target in
                " to " + (target.hasSuffix("/" + path) ? target.dropLast(path.count + 1) : target[...])
            }
            return "it answers with a redirect\(target ?? "") (\(head.status)): give that address"
        case 401 where !hasToken:
            return "it wants a token (401): give one by --token-file or $STALL_MONITOR_TOKEN"
        case 401, 403:
            return "it does not know the token, or does not permit it to write (\(head.status))"
        default: return "it answers \(head.status)\(reason(body))"
        }
    }

    /// Seconds, or a date (RFC 9110, 10.2.3).
    static func delay(_ text: String, now: Date) -> Duration? {
        if let seconds = Int64(text) { return seconds >= 0 ? .seconds(min(seconds, 1 << 20)) : nil }
        guard let date = DateFormatter.http.date(from: text) else { return nil }
        return .seconds(min(max(0, date.timeIntervalSince(now)), 1_000_000))
    }

    /// The receiver's reason, if it is short text. Of a page, such as a proxy's, its title.
    static func reason(_ body: [UInt8]) -> String {
        let status: Status? = try? ReportJSON.decode(body)
        guard let given = status?.message ?? String(validating: body, as: UTF8.self) else { return "" }
        let text = given.trimmingCharacters(in: .whitespacesAndNewlines)
        let words = text.hasPrefix("<") ? title(of: text) : text[...]
        return words.isEmpty ? "" : ": \(words.prefix(200))"
    }

    private static func title(of page: String) -> Substring {
        guard let start = page.range(of: "<title>", options: .caseInsensitive)?.upperBound else { return "" }
        return page[start...].prefix { $0 != "<" && !$0.isNewline }
    }

    private struct Status: Decodable { var message: String? }

    /// The JSON encoding of protocol buffers: 64-bit numbers are strings or numbers.
    private struct Reply: Decodable {
        var partialSuccess: Partial?
        /// From a collector, which always says it.
        var accepted: Int?
        var refused: Int?
        var reasons: [Reason]?

        var rejected: Int { partialSuccess?.rejected ?? max(0, refused ?? 0) }
        var message: String { partialSuccess?.errorMessage ?? reasons?.first?.reason ?? "" }

        struct Reason: Decodable { var reason: String }

        struct Partial: Decodable {
            var rejectedLogRecords: Count?
            var rejectedDataPoints: Count?
            var errorMessage: String?
            var rejected: Int { (rejectedLogRecords ?? rejectedDataPoints)?.value ?? 0 }
        }

        struct Count: Decodable {
            var value: Int

            init(from decoder: any Decoder) throws {
                let container = try decoder.singleValueContainer()
                if let number = try? container.decode(Int.self) {
                    value = max(0, number)
                } else {
                    value = max(0, Int(try container.decode(String.self)) ?? 0)
                }
            }
        }
    }
}

extension DateFormatter {
    /// The dates in HTTP's fields (RFC 9110, 5.6.7).
    static var http: DateFormatter {
        let format = DateFormatter()
        format.locale = Locale(identifier: "en_US_POSIX")
        format.timeZone = .gmt
        format.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
        return format
    }
}
