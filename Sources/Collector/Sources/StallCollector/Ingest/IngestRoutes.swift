internal import Foundation
internal import GzipCompression
internal import HTTPTypes
internal import Hummingbird
internal import Logging
internal import NIOCore
internal import StallReports
internal import StallStore

/// Takes reports: `POST /v1/reports`, one JSON document a line, reports and run records mixed, packed by gzip or not.
struct IngestRoutes {
    let queue: IngestQueue
    let limits: IngestLimits
    let metrics: CollectorMetrics

    func add(to router: some RouterMethods<CollectorContext>) {
        router.post("v1/reports") { request, context in try await take(request, context) }
    }

    private func take(_ request: Request, _ context: CollectorContext) async throws -> Response {
        let team = try context.team(.write)
        metrics.requests.add(1)
        let body = try await body(of: request)
        metrics.bytes.add(body.count)
        let (arrivals, refused) = try parse(body, team)
        metrics.refused.add(refused.count)
        let new: Int
        do {
            new = try await queue.insert(arrivals, size: body.count)
        } catch is IngestQueue.Overloaded {
            metrics.overloads.add(1)
            throw Refusal(.tooManyRequests, "too much waits for the disk", [.retryAfter: "1"])
        } catch {
            context.logger.error("the store took nothing", metadata: ["error": "\(error)"])
            throw Refusal(.serviceUnavailable, "the store takes nothing just now", [.retryAfter: "5"])
        }
        metrics.accepted.add(arrivals.count)
        metrics.new.add(new)
        if !refused.isEmpty {
            context.logger.notice(
                "refused records",
                metadata: ["team": "\(team)", "count": "\(refused.count)", "first": "\(refused[0].reason)"]
            )
        }
        return try JSONAnswer.make(
            Receipt(accepted: arrivals.count, refused: refused.count, reasons: Array(refused.prefix(20))),
            status: .accepted
        )
    }

    /// What became of a request.
    struct Receipt: Codable, Hashable {
        /// Records that are on the disk, those that were known before included.
        var accepted: Int
        /// Records that are no reports. The same again would be refused again.
        var refused: Int
        /// Of the first of them.
        var reasons: [Reason]

        struct Reason: Codable, Hashable {
            /// From 1.
            var line: Int
            var reason: String
        }
    }

    private func body(of request: Request) async throws -> [UInt8] {
        // Browsers send other kinds to other sites without asking.
        let type = request.headers[.contentType]?.split(separator: ";").first?.trimmingCharacters(in: .whitespaces)
        guard let type, ["application/x-ndjson", "application/jsonl", "application/json"].contains(type.lowercased())
        else {
            throw Refusal(.unsupportedMediaType, "send one JSON document a line, as application/x-ndjson")
        }
        let coding = request.headers[.contentEncoding]?.lowercased() ?? "identity"
        guard ["gzip", "identity"].contains(coding) else {
            throw Refusal(.unsupportedMediaType, "send it packed by gzip, or not packed", [.acceptEncoding: "gzip"])
        }
        let packed = try await collect(request)
        guard coding == "gzip" else { return packed }
        do throws(Gzip.Failure) {
            return try Gzip.decompressed(packed, limit: limits.unpackedBytes)
        } catch .tooLarge {
            throw Refusal(
                .contentTooLarge,
                "unpacked it is more than \(limits.unpackedBytes) bytes; send fewer reports at a time"
            )
        } catch {
            throw Refusal(.badRequest, "the body is no gzip, or cut off")
        }
    }

    /// Within a time: a sender that sends a byte now and then holds no place for long.
    private func collect(_ request: Request) async throws -> [UInt8] {
        try await withThrowingTaskGroup(of: [UInt8]?.self) { group in
            group.addTask { [limits] in
                var body: [UInt8] = []
                for try await part in request.body {
                    guard body.count + part.readableBytes <= limits.bytes else {
                        throw Refusal(
                            .contentTooLarge,
                            "the body is more than \(limits.bytes) bytes; send fewer reports at a time"
                        )
                    }
                    body += part.readableBytesView
                }
                return body
            }
            group.addTask { [limits] in
                try await Task.sleep(for: limits.patience)
                return nil
            }
            defer { group.cancelAll() }
            guard let body = try await group.next() ?? nil else {
                throw Refusal(.requestTimeout, "the body did not come within \(limits.patience)")
            }
            return body
        }
    }

    private func parse(_ body: [UInt8], _ team: String) throws -> ([Arrival], [Receipt.Reason]) {
        var (arrivals, refused, number): ([Arrival], [Receipt.Reason], Int) = ([], [], 0)
        for line in body.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: false) {
            number += 1
            guard !line.isEmpty else { continue }
            guard arrivals.count + refused.count < limits.records else {
                throw Refusal(.contentTooLarge, "more than \(limits.records) records in a request")
            }
            do throws(RefusedArrival) {
                guard line.count <= limits.recordBytes else {
                    throw RefusedArrival("more than \(limits.recordBytes) bytes")
                }
                arrivals.append(try Arrival(json: Array(line), team: team))
            } catch {
                refused.append(.init(line: number, reason: error.description))
            }
        }
        return (arrivals, refused)
    }
}

/// What a request may be.
public struct IngestLimits: Sendable {
    /// As it comes.
    public var bytes = 16 << 20
    public var unpackedBytes = 64 << 20
    public var recordBytes = 8 << 20
    public var records = 10_000
    /// For the whole body.
    public var patience = Duration.seconds(30)
    /// Of all requests together that wait for the disk.
    public var waitingBytes = 128 << 20

    public init() {}
}
