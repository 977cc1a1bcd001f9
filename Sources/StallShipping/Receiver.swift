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
