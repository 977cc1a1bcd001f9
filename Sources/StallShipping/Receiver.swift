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
    /// Blocks the calling thread until the answer arrives.
    func post(_ body: [UInt8], to path: String) -> Answer
}

/// An OTLP receiver over HTTP: https://opentelemetry.io/docs/specs/otlp/#otlphttp.
struct HTTPReceiver: Receiver {
    private let base: URL
    private let isCollector: Bool
    private let headers: [(name: String, value: String)]
    private let token: TokenSource
    private let timeout: Duration

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
        timeout = options.timeout
        token = TokenSource(file: options.tokenFile, value: options.token)
        // An unreadable file is reported at once.
        _ = try token.read()
    }

    private static func isHeader(_ name: String, _ value: String) -> Bool {
        !name.isEmpty && name.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber || "-_".contains($0)) }
            && value.utf8.allSatisfy { (0x20...0x7e).contains($0) }
    }

    func post(_ body: [UInt8], to path: String) -> Answer {
        var request = WebRequest(base.appending(path: path).absoluteString, limit: .whole(timeout))
        request.fields += headers
        let packed = Gzip.compressed(body)
        if packed != nil { request.fields.append(("Content-Encoding", "gzip")) }
        request.body = packed ?? body
        do {
            request.fields += try token.field()
            // Only the beginning of an answer is of use.
            let (head, body) = try request.send(bytes: 1 << 16)
            return HTTPAnswer.read(head, body, isCollector: isCollector)
        } catch let failure as WebRequest.Failure where failure.isTimeout {
            return .unavailable("no answer within \(Int(timeout / .seconds(1))) s", retryAfter: nil)
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
