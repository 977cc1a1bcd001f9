import Dispatch
import Foundation
import FoundationNetworking
package import StallReading
import StallReports
import Synchronization

/// Queries a collector. Each call blocks the calling thread until the answer has arrived.
package struct CollectorClient {
    /// The query parameters: `since`, `until`, `service` and so on, each any number of times.
    package typealias Question = [(name: String, value: String)]

    private let base: URL
    private let token: TokenSource
    /// The longest time without received data.
    private let timeout: Duration

    /// What was received.
    package struct Counts: Sendable {
        package var stalls = 0
        package var runs = 0
    }

    /// - Parameters:
    ///   - address: The collector's address, `https://stalls.example.com:4319`.
    ///   - tokenFile: A file with a bearer token; without it, `token` is used.
    package init(
        _ address: String,
        tokenFile: String?,
        token: String?,
        timeout: Duration = .seconds(60)
    ) throws(ShippingError) {
        base = try HTTPAddress.url(address, of: .collector)
        self.token = TokenSource(file: tokenFile, value: token)
        self.timeout = timeout
    }

    /// The faults of many stalls, summed by the collector.
    package func faults(_ question: Question) throws -> FaultDocument {
        try withAnswer("api/v1/faults", question, in: NSTemporaryDirectory()) { file in
            do {
                return try ReportJSON.decode(
                    FaultDocument.self,
                    schema: FaultDocument.currentSchema,
                    from: [UInt8](try Data(contentsOf: file))
                )
            } catch let error as ReportError {
                throw ShippingError("\(base.absoluteString) sends what are no faults: \(error)")
            }
        }
    }

    /// Fetches run records and reports into an existing directory, where every reader finds them.
    ///
    /// - Parameter progress: Called from time to time with the number of bytes received.
    package func fetch(
        _ question: Question,
        into directory: String,
        progress: (Int64) -> Void = { _ in }
    ) throws -> Counts {
        try withAnswer("api/v1/records", question, in: directory, progress) { try split($0, into: directory) }
    }

    /// - Parameter directory: Receives the answer, in a file that exists while `read` runs.
    private func withAnswer<Result>(
        _ path: String,
        _ question: Question,
        in directory: String,
        _ progress: (Int64) -> Void = { _ in },
        read: (URL) throws -> Result
    ) throws -> Result {
        var request = URLRequest(
            url: base.appending(path: path).appending(
                queryItems: question.map { URLQueryItem(name: $0.name, value: $0.value) }
            )
        )
        if let token = try token.read() { request.setValue("Bearer \(token)", forHTTPHeaderField: "Authorization") }
        let file = URL(fileURLWithPath: "\(directory)/.answer-\(ULID.make())")
        defer { try? FileManager.default.removeItem(at: file) }
        try receive(request, in: file, progress)
        return try read(file)
    }

    private func receive(_ request: URLRequest, in file: URL, _ progress: (Int64) -> Void) throws {
        let download = try Download(to: file)
        let configuration = URLSessionConfiguration.ephemeral
        configuration.timeoutIntervalForRequest = timeout / .seconds(1)
        let session = URLSession(configuration: configuration, delegate: download, delegateQueue: nil)
        defer { session.invalidateAndCancel() }
        session.dataTask(with: request).resume()
        var (bytes, lastProgress): (Int64, ContinuousClock.Instant) = (0, .now)
        while !download.waitForEnd(.milliseconds(200)) {
            let now = download.bytes
            if now > bytes { (bytes, lastProgress) = (now, .now) }
            progress(bytes)
            guard ContinuousClock.now - lastProgress < timeout else {
                throw ShippingError("\(base.absoluteString): nothing came for \(Int(timeout / .seconds(1))) s")
            }
        }
        let answer = try download.answer()
        // For an unsuccessful answer, its beginning may be all that is needed.
        if [0, 200].contains(answer.status), let error = answer.error {
            throw ShippingError("\(base.absoluteString): \(error)")
        }
        switch answer.status {
        case 200: return
        case 300..<400:
            throw ShippingError("\(base.absoluteString) sends elsewhere (\(answer.status)): give the address itself")
        case 401, 403:
            throw ShippingError(
                "\(base.absoluteString) does not know the token, or does not permit it to read (\(answer.status))"
            )
        case 404: throw ShippingError("\(base.absoluteString) is no collector, or an older one (404)")
        default:
            throw ShippingError("\(base.absoluteString) answers \(answer.status)\(HTTPAnswer.reason(answer.body))")
        }
    }

    /// Writes each line into its own file, with the name that the store would use.
    private func split(_ source: URL, into directory: String) throws -> Counts {
        let file = try FileHandle(forReadingFrom: source)
        defer { try? file.close() }
        var (counts, rest): (Counts, [UInt8]) = (Counts(), [])
        while let part = try file.read(upToCount: 1 << 20), !part.isEmpty {
            rest += part
            var start = rest.startIndex
            while let end = rest[start...].firstIndex(of: UInt8(ascii: "\n")) {
                try write(Array(rest[start..<end]), into: directory, &counts)
                start = end + 1
            }
            rest.removeFirst(start)
            guard rest.count <= ReportReader.maximumFileSize else {
                throw ShippingError("\(base.absoluteString) sends a record that is larger than a report may be")
            }
        }
        guard rest.isEmpty else { throw ShippingError("\(base.absoluteString): its answer was cut off") }
        return counts
    }

    private func write(_ json: [UInt8], into directory: String, _ counts: inout Counts) throws {
        let name: ReportFileName
        do throws(ReportError) {
            name = try ReportFileName(of: json)
        } catch {
            throw ShippingError("\(base.absoluteString) sends what is no report: \(error)")
        }
        do {
            try Data(json).write(to: URL(fileURLWithPath: "\(directory)/\(name)"))
        } catch {
            throw ShippingError("\(directory): \(error.localizedDescription)")
        }
        if name.content == .stall { counts.stalls += 1 } else { counts.runs += 1 }
    }
}

/// One answer, written to a file as it arrives. (A download task of FoundationNetworking leaves its own files behind.)
private final class Download: NSObject, URLSessionDataDelegate, KeepsToken {
    struct Answer: Sendable {
        var status = 0
        /// The beginning of an answer that is not 200.
        var body = Data()
        /// Why there is no answer.
        var error: String?
    }

    private let file: FileHandle
    private let end = DispatchSemaphore(value: 0)
    private let state = Mutex((bytes: Int64(0), answer: Answer(), failure: (any Error)?.none))

    init(to url: URL) throws {
        try Data().write(to: url)
        file = try FileHandle(forWritingTo: url)
    }

    var bytes: Int64 { state.withLock { $0.bytes } }

    /// - Returns: Whether it has ended.
    func waitForEnd(_ time: Duration) -> Bool { end.wait(timeout: .now() + time / .seconds(1)) == .success }

    func answer() throws -> Answer {
        try state.withLock { state in
            if let failure = state.failure { throw failure }
            return state.answer
        }
    }

    func urlSession(_ session: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
        let isAnswer = (dataTask.response as? HTTPURLResponse)?.statusCode == 200
        let isUseless = state.withLock { state in
            state.bytes += Int64(data.count)
            guard isAnswer else {
                state.answer.body += data.prefix(max(0, 1 << 16 - state.answer.body.count))
                return state.answer.body.count == 1 << 16
            }
            guard state.failure == nil else { return true }
            do {
                try file.write(contentsOf: data)
            } catch {
                state.failure = error
            }
            return state.failure != nil
        }
        if isUseless { dataTask.cancel() }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        state.withLock { state in
            state.answer.status = (task.response as? HTTPURLResponse)?.statusCode ?? 0
            state.answer.error = error?.localizedDescription
        }
        end.signal()
    }
}
