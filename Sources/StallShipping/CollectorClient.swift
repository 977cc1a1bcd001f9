import Foundation
package import StallReading
import StallReports
import WebRequests

/// Queries a collector. Each call blocks the calling thread until the answer has arrived.
package struct CollectorClient {
    /// The query parameters: `since`, `until`, `service` and so on, each any number of times.
    package typealias Question = [(name: String, value: String)]

    private let base: URL
    private let token: TokenSource
    /// The longest time without received data.
    private static let timeout = Duration.seconds(60)

    /// - Parameters:
    ///   - address: The collector's address, `https://stalls.example.com:4319`.
    ///   - tokenFile: A file with a bearer token; without it, `token` is used.
    package init(_ address: String, tokenFile: String?, token: String?) throws(ShippingError) {
        base = try HTTPAddress.url(address, of: .collector)
        self.token = TokenSource(file: tokenFile, value: token)
    }

    /// The faults of many stalls, summed by the collector; and whether a part of its store did not answer, so that some are missing.
    package func faults(_ question: Question) throws -> (document: FaultDocument, isPartial: Bool) {
        var answer: [UInt8] = []
        let head = try ask("api/v1/faults", question) { answer += $0 }
        do throws(ReportError) {
            let document = try ReportJSON.decode(
                FaultDocument.self,
                schema: FaultDocument.currentSchema,
                from: answer
            )
            return (document, head.fields["stall-partial"] == "true")
        } catch {
            throw unexpected("faults", error)
        }
    }

    /// Fetches run records and reports into an existing directory, where every reader finds them.
    ///
    /// - Parameter progress: Called at the start, and with each MiB, with the number of bytes received.
    package func fetch(_ question: Question, into directory: String, progress: (Int64) -> Void) throws {
        let file = URL(fileURLWithPath: "\(directory)/.answer-\(ULID.make())")
        try Data().write(to: file)
        defer { try? FileManager.default.removeItem(at: file) }
        let output = try FileHandle(forWritingTo: file)
        defer { try? output.close() }
        var bytes: Int64 = 0
        progress(bytes)
        _ = try ask("api/v1/records", question) { part in
            try output.write(contentsOf: part)
            let before = bytes
            bytes += Int64(part.count)
            if before >> 20 < bytes >> 20 { progress(bytes) }
        }
        try split(file, into: directory)
    }

    /// - Parameter take: Called with each part of an answer that is 200.
    private func ask(
        _ path: String,
        _ question: Question,
        _ take: ([UInt8]) throws -> Void
    ) throws -> WebRequest.Head {
        let url = base.appending(path: path).appending(
            queryItems: question.map { URLQueryItem(name: $0.name, value: $0.value) }
        )
        var request = WebRequest(url.absoluteString, limit: .silence(Self.timeout))
        let authorization = try token.field()
        request.fields += authorization
        // The beginning of an answer that is not 200.
        var refusal = Data()
        var hasBegun = false
        let head: WebRequest.Head
        do {
            head = try request.send { head, part in
                hasBegun = true
                guard head.status == 200 else {
                    refusal += part.prefix(1 << 16 - refusal.count)
                    return refusal.count < 1 << 16
                }
                try take(part)
                return true
            }
        } catch let failure as WebRequest.Failure {
            throw noAnswer(failure, hasBegun: hasBegun)
        }
        guard head.status == 200 else {
            let words = Self.words(head.status, refusal, hasToken: !authorization.isEmpty)
            throw ShippingError(base.absoluteString + words)
        }
        return head
    }

    private func noAnswer(_ failure: WebRequest.Failure, hasBegun: Bool) -> ShippingError {
        let reason = failure.isTimeout ? "nothing came for \(Int(Self.timeout / .seconds(1))) s" : failure.description
        let advice =
            hasBegun
            ? "the collector's answer was cut off; try again, or ask for less with --since"
            : "no collector answers there; check the host and the port, and that the collector runs"
        return ShippingError("\(base.absoluteString): \(advice) (\(reason))")
    }

    private func unexpected(_ what: String, _ error: ReportError) -> ShippingError {
        let reason = error.detail ?? error.code.name
        return ShippingError(
            "\(base.absoluteString) answers, but not with \(what) (\(reason)): check that this is a collector's address, and its version"
        )
    }

    /// What an answer other than 200 means, after the address.
    private static func words(_ status: Int, _ refusal: Data, hasToken: Bool) -> String {
        switch status {
        case 300..<400: " sends elsewhere (\(status)): give the address itself"
        case 401 where !hasToken:
            " wants a token (401): give one by $STALL_MONITOR_TOKEN, or a file with one by $STALL_MONITOR_TOKEN_FILE"
        case 401, 403: " does not know the token, or does not permit it to read (\(status))"
        case 404: " is no collector, or an older one (404)"
        default: " answers \(status)\(HTTPAnswer.reason(Array(refusal)))"
        }
    }

    /// Writes each line into its own file, with the name that the store would use.
    private func split(_ source: URL, into directory: String) throws {
        let file = try FileHandle(forReadingFrom: source)
        defer { try? file.close() }
        var rest: [UInt8] = []
        while let part = try file.read(upToCount: 1 << 20), !part.isEmpty {
            rest += part
            var start = rest.startIndex
            while let end = rest[start...].firstIndex(of: UInt8(ascii: "\n")) {
                try write(Array(rest[start..<end]), into: directory)
                start = end + 1
            }
            rest.removeFirst(start)
            guard rest.count <= ReportReader.maximumFileSize else {
                throw ShippingError("\(base.absoluteString) sends a record that is larger than a report may be")
            }
        }
        guard rest.isEmpty else { throw ShippingError("\(base.absoluteString): its answer was cut off") }
    }

    private func write(_ json: [UInt8], into directory: String) throws {
        let name: ReportFileName
        do throws(ReportError) {
            name = try ReportFileName(of: json)
        } catch {
            throw unexpected("reports", error)
        }
        do {
            try Data(json).write(to: URL(fileURLWithPath: "\(directory)/\(name)"))
        } catch {
            throw ShippingError("\(directory): \(error.localizedDescription)")
        }
    }
}
