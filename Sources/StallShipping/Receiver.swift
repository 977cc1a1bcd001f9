import Foundation
import GzipCompression
import StallExport
import StallReports
import WebRequests

/// A receiver's answer to a request.
enum Answer: Hashable, Sendable {
    /// - Parameter rejected: The number of records that it rejected permanently, although it accepted the request.
    case accepted(rejected: Int, message: String)
    /// Not to be sent again unchanged: the request, or a record in it, is invalid.
    case refused(String)
    /// The receiver does not know the path, so it does not accept this kind of record.
    case unknownPath(String)
    /// Temporarily unavailable: the request must be sent again, after `retryAfter` at the earliest.
    case unavailable(String, retryAfter: Duration?)
}

/// Receives requests.
protocol Receiver {
    /// Blocks the calling thread until the answer arrives, the time is over, or the answer is no longer awaited.
    func post(_ body: [UInt8], to path: String, within limit: Duration, while isAwaited: () -> Bool) -> Answer
}

/// An OTLP receiver over HTTP: https://opentelemetry.io/docs/specs/otlp/#otlphttp.
struct HTTPReceiver: Receiver {
    private let base: URL
    private let isCollector: Bool
    private let headers: [(name: String, value: String)]
    private let token: TokenSource

    /// Throws if the address or a header is not usable.
    init(_ options: ShippingOptions) throws {
        isCollector = options.isCollector
        base = try HTTPAddress.url(options.endpoint, of: isCollector ? .collector : .receiver)
        for (name, value) in options.headers where !Self.isHeader(name, value) {
            throw ShippingError(
                "the header \(name) cannot be sent: its name is letters, digits and hyphens, its value printable ASCII"
            )
        }
        headers = [("Content-Type", options.wire.contentType)] + options.headers
        token = TokenSource(file: options.tokenFile, value: options.token)
        // An unreadable file is reported at once.
        _ = try token.read()
    }

    private static func isHeader(_ name: String, _ value: String) -> Bool {
        !name.isEmpty && name.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "-_".contains($0)) }
            && value.utf8.allSatisfy { (0x20...0x7e).contains($0) }
    }

    func post(_ body: [UInt8], to path: String, within limit: Duration, while isAwaited: () -> Bool) -> Answer {
        let start = ContinuousClock.now
        var request = WebRequest(base.appending(path: path).absoluteString, limit: .whole(limit))
        // A collector takes nothing by a clock that is ahead of its own: it could only refuse the reports for their time.
        request.fields.append(("Date", DateFormatter.http.string(from: Date())))
        request.fields += headers
        let packed = Gzip.compressed(body)
        if packed != nil { request.fields.append(("Content-Encoding", "gzip")) }
        request.body = packed ?? body
        do {
            request.fields += try token.field()
            // Only the beginning of an answer is of use.
            let (head, body) = try request.send(bytes: 1 << 16, while: isAwaited)
            return HTTPAnswer.read(
                head,
                body,
                isCollector: isCollector,
                path: path,
                hasToken: request.fields.contains { $0.name.lowercased() == "authorization" }
            )
        } catch let failure as WebRequest.Failure where failure.isTimeout {
            let seconds = Int(((ContinuousClock.now - start) / .seconds(1)).rounded())
            return .unavailable("no answer within \(max(1, seconds)) s", retryAfter: nil)
        } catch {
            return .unavailable("\(error)", retryAfter: nil)
        }
    }
}

/// How reports and run records are encoded into requests.
enum Wire: Hashable, Sendable {
    /// OpenTelemetry's JSON: stalls are log records, the counts of runs are metrics.
    case telemetry
    /// A collector's own format: full reports and records, one per line.
    case collector

    func element(_ report: StallReport) throws(ReportError) -> [UInt8] {
        self == .telemetry ? try Telemetry.element(report) : try report.json()
    }

    func element(_ run: RunRecord) throws(ReportError) -> [UInt8] {
        self == .telemetry ? try Telemetry.element(run) : try run.json()
    }

    func path(_ signal: Telemetry.Signal) -> String { self == .telemetry ? signal.path : "v1/reports" }

    /// The body of one request.
    func request(_ elements: [[UInt8]], _ signal: Telemetry.Signal) -> [UInt8] {
        self == .telemetry ? signal.request(elements) : Array(elements.joined())
    }

    var contentType: String { self == .telemetry ? "application/json" : "application/x-ndjson" }
}

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
        case 300..<400:
            // Requests add the path to the address again.
            let target = head.fields["location"].map { target in
                " to " + (target.hasSuffix("/" + path) ? target.dropLast(path.count + 1) : target[...])
            }
            return .unavailable(
                "it answers with a redirect\(target ?? "") (\(status)): give that address",
                retryAfter: retryAfter
            )
        case 401 where !hasToken:
            return .unavailable(
                "it wants a token (401): give one by --token-file or $STALL_MONITOR_TOKEN",
                retryAfter: retryAfter
            )
        case 401, 403:
            return .unavailable(
                "it does not know the token, or does not permit it to write (\(status))",
                retryAfter: retryAfter
            )
        case 404, 405, 501: return .unknownPath("\(status)")
        case 400, 411, 413, 414, 415, 422: return .refused("\(status)\(reason(body))")
        default: return .unavailable("it answers \(status)\(reason(body))", retryAfter: retryAfter)
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
    fileprivate static var http: DateFormatter {
        let format = DateFormatter()
        format.locale = Locale(identifier: "en_US_POSIX")
        format.timeZone = .gmt
        format.dateFormat = "EEE, dd MMM yyyy HH:mm:ss 'GMT'"
        return format
    }
}

/// The address of a receiver or a collector.
package enum HTTPAddress {
    /// Who is at the address.
    package enum Kind: Sendable {
        case receiver, collector

        fileprivate var name: String { self == .receiver ? "a receiver" : "a collector" }
        fileprivate var example: String {
            self == .receiver ? "https://otlp.example.com:4318" : "https://stalls.example.com:4319"
        }
    }

    /// Throws if the text has another scheme than http or https, no host, or a port that does not exist.
    package static func check(_ text: String, of kind: Kind) throws(ShippingError) { _ = try url(text, of: kind) }

    static func url(_ text: String, of kind: Kind) throws(ShippingError) -> URL {
        guard let url = URL(string: text), ["http", "https"].contains(url.scheme?.lowercased()),
            url.host()?.isEmpty == false, url.port.map({ (1...65_535).contains($0) }) ?? true
        else { throw ShippingError("'\(text)' is not the address of \(kind.name): give one like \(kind.example)") }
        return url
    }
}

/// A secret that authenticates the sender. A file is read for each request, because secrets are replaced while processes run.
struct TokenSource: Sendable {
    /// Nil: `value` is used.
    var file: String?
    var value: String?

    /// The header field of a request; none without a token.
    func field() throws -> [(name: String, value: String)] {
        try read().map { [("Authorization", "Bearer \($0)")] } ?? []
    }

    func read() throws -> String? {
        guard let text = try file.map(Self.text) ?? value else { return nil }
        let token = text.trimmingCharacters(in: .whitespacesAndNewlines)
        guard !token.isEmpty, token.utf8.allSatisfy({ (0x21...0x7e).contains($0) }), token.utf8.count <= 8192 else {
            let place = file.map { "the token's file \($0) holds no token" } ?? "the given token cannot be sent"
            throw ShippingError("\(place): one line of ASCII is expected")
        }
        return token
    }

    private static func text(_ file: String) throws -> String {
        do {
            return try String(contentsOfFile: file, encoding: .utf8)
        } catch {
            throw ShippingError("the token's file \(file) cannot be read")
        }
    }
}
