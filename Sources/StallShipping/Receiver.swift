import Foundation
import FoundationNetworking
import GzipCompression
import StallExport
import StallReports
import Synchronization

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

/// An OTLP receiver over HTTP: https://opentelemetry.io/docs/specs/otlp/#otlphttp. A proxy is taken from `http_proxy`,
/// `https_proxy` and `no_proxy`, as libcurl does.
final class HTTPReceiver: Receiver {
    private let base: URL
    private let headers: [(name: String, value: String)]
    private let token: TokenSource
    private let timeout: Duration
    private let contentType: String
    private let session: URLSession
    private let exchanges = Exchanges()

    /// Throws if the address or a header is not usable.
    init(_ options: ShippingOptions) throws {
        let base = try HTTPAddress.url(options.endpoint, of: options.isCollector ? .collector : .receiver)
        for (name, value) in options.headers where !Self.isHeader(name, value) {
            throw ShippingError(
                "the header \(name) cannot be sent: its name is letters, digits and hyphens, its value printable ASCII"
            )
        }
        (self.base, headers, timeout) = (base, options.headers, options.timeout)
        contentType = options.wire.contentType
        token = TokenSource(file: options.tokenFile, value: options.token)
        // An unreadable file is reported at once.
        _ = try token.read()
        let configuration = URLSessionConfiguration.ephemeral
        configuration.timeoutIntervalForRequest = timeout / .seconds(1)
        configuration.httpShouldSetCookies = false
        session = URLSession(configuration: configuration, delegate: exchanges, delegateQueue: nil)
    }

    deinit { session.invalidateAndCancel() }

    private static func isHeader(_ name: String, _ value: String) -> Bool {
        !name.isEmpty
            && name.utf8.allSatisfy {
                $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "_") || Character(Unicode.Scalar($0)).isLetter
                    || Character(Unicode.Scalar($0)).isNumber
            }
            && value.utf8.allSatisfy { (0x20...0x7e).contains($0) }
    }

    func post(_ body: [UInt8], to path: String) -> Answer {
        var request = URLRequest(url: base.appending(path: path))
        request.httpMethod = "POST"
        request.setValue(contentType, forHTTPHeaderField: "Content-Type")
        // Several seconds pass between two requests. The other side might close a kept connection just when it is needed again,
        // and Foundation would not end such a request.
        request.setValue("close", forHTTPHeaderField: "Connection")
        for (name, value) in headers { request.setValue(value, forHTTPHeaderField: name) }
        do {
            if let token = try token.read() { request.setValue("Bearer \(token)", forHTTPHeaderField: "Authorization") }
        } catch {
            return .unavailable("\(error)", retryAfter: nil)
        }
        if let packed = Gzip.compressed(body) {
            request.setValue("gzip", forHTTPHeaderField: "Content-Encoding")
            request.httpBody = Data(packed)
        } else {
            request.httpBody = Data(body)
        }
        let task = session.dataTask(with: request)
        let exchange = exchanges.begin(task)
        task.resume()
        guard let parts = exchange.wait(for: timeout) else {
            exchanges.end()
            task.cancel()
            return .unavailable("no answer within \(Int(timeout / .seconds(1))) s", retryAfter: nil)
        }
        exchanges.end()
        return HTTPAnswer.read(parts)
    }
}

/// The answer to one request as it arrives. Only its useful part is kept.
private final class Exchange: Sendable {
    static let limit = 1 << 16
    let task: Int
    private let end = DispatchSemaphore(value: 0)
    private let state = Mutex((body: Data(), parts: HTTPAnswer.Parts?.none))

    init(_ task: Int) { self.task = task }

    /// Nil after the timeout.
    func wait(for time: Duration) -> HTTPAnswer.Parts? {
        guard end.wait(timeout: .now() + time / .seconds(1)) == .success else { return nil }
        return state.withLock { $0.parts }
    }

    /// - Returns: Whether there is room for more.
    func add(_ data: Data) -> Bool {
        state.withLock { state in
            state.body.append(data.prefix(Self.limit - state.body.count))
            return state.body.count < Self.limit
        }
    }

    func finish(_ response: HTTPURLResponse?, _ error: String?) {
        state.withLock { state in
            state.parts = .init(
                status: response?.statusCode,
                retryAfter: response?.value(forHTTPHeaderField: "Retry-After"),
                location: response?.value(forHTTPHeaderField: "Location"),
                body: state.body,
                error: error
            )
        }
        end.signal()
    }
}

/// Passes the session's events to the waiting request. Requests that were given up may still produce events.
private final class Exchanges: NSObject, URLSessionDataDelegate, KeepsToken {
    private let current = Mutex(Exchange?.none)

    func begin(_ task: URLSessionTask) -> Exchange {
        let exchange = Exchange(task.taskIdentifier)
        current.withLock { $0 = exchange }
        return exchange
    }

    func end() { current.withLock { $0 = nil } }

    private func exchange(of task: URLSessionTask) -> Exchange? {
        current.withLock { $0?.task == task.taskIdentifier ? $0 : nil }
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        if exchange(of: dataTask)?.add(data) != true { dataTask.cancel() }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        exchange(of: task)?.finish(task.response as? HTTPURLResponse, error?.localizedDescription)
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
