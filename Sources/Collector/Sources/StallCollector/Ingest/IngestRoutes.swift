internal import Foundation
internal import HTTPTypes
internal import Hummingbird
internal import Logging
internal import NIOCore
internal import StallReports
internal import StallStore

/// Takes reports: `POST /v1/reports`, one JSON document a line, reports and run records mixed, packed by gzip or not.
struct IngestRoutes {
    let queue: IngestQueue
    let budget: IngestBudget
    /// Before unpacking and parsing.
    let gate: Gate
    let limits: IngestLimits
    let retention: Retention
    let metrics: CollectorMetrics
    let audit: AuditLog?

    init(
        _ store: any StallStore,
        _ limits: IngestLimits,
        _ retention: Retention,
        _ metrics: CollectorMetrics,
        _ audit: AuditLog?
    ) {
        queue = IngestQueue(store, maximumBytes: limits.waitingBytes)
        budget = IngestBudget(limits.waitingBytes)
        gate = Gate(width: limits.parsers, waitingLimit: limits.waitingParsers)
        (self.limits, self.retention, self.metrics, self.audit) = (limits, retention, metrics, audit)
    }

    func add(to router: some RouterMethods<CollectorContext>) {
        router.post("v1/reports") { request, context in
            let caller = context.caller?.team ?? ""
            do {
                let (response, receipt) = try await take(request, context)
                audit?.write(.init(action: "ingest", team: caller, peer: context.peer, receipt: receipt))
                return response
            } catch let refusal as Refusal {
                audit?.write(.init(action: "ingest", team: caller, peer: context.peer, refusal: refusal))
                throw refusal
            }
        }
    }

    private func take(_ request: Request, _ context: CollectorContext) async throws -> (Response, Receipt) {
        let team = try context.team(.write)
        metrics.requests.add(1)
        let isPacked = try Self.isPacked(request)
        // Before the first byte is read.
        guard let share = budget.share(of: try expectedBytes(request)) else { throw overload("memory") }
        let body = try await collect(request)
        let parsed: Parsed
        do {
            parsed = try await gate.pass { try await parse(body, isPacked, team, share) }
        } catch is Gate.Crowded {
            throw overload("its turn")
        }
        share.shrink(by: body.count)
        metrics.bytes.add(parsed.bytes)
        metrics.refused.add(parsed.refused.count)
        try await insert(parsed, context)
        if let first = parsed.refused.first {
            context.logger.notice(
                "refused records",
                metadata: ["team": "\(team)", "count": "\(parsed.refused.count)", "first": "\(first.reason)"]
            )
        }
        let receipt = Receipt(
            accepted: parsed.arrivals.count,
            refused: parsed.refused.count,
            reasons: Array(parsed.refused.prefix(20))
        )
        return (try JSONAnswer.make(receipt, status: .accepted), receipt)
    }

    private func insert(_ parsed: Parsed, _ context: CollectorContext) async throws {
        do {
            metrics.new.add(try await queue.insert(parsed.arrivals, size: parsed.heldBytes))
        } catch is IngestQueue.Overloaded {
            throw overload("the disk")
        } catch {
            context.logger.error("the store took nothing", metadata: ["error": "\(error)"])
            retention.note(bytes: 0, isFull: true)
            throw Refusal(.serviceUnavailable, "the store takes nothing just now", [.retryAfter: "5"])
        }
        metrics.accepted.add(parsed.arrivals.count)
        retention.note(bytes: parsed.heldBytes)
    }

    private func overload(_ what: String) -> Refusal {
        metrics.overloads.add(1)
        return Refusal(.tooManyRequests, "too much waits for \(what)", [.retryAfter: "1"])
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

    // MARK: The body

    private static func isPacked(_ request: Request) throws -> Bool {
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
        return coding == "gzip"
    }

    /// What the head says, or else as much as is permitted.
    private func expectedBytes(_ request: Request) throws -> Int {
        guard let text = request.headers[.contentLength] else { return limits.bytes }
        guard let length = Int(text), length >= 0 else { throw Refusal(.badRequest, "the body's length is no number") }
        guard length <= limits.bytes else { throw tooLarge }
        return length
    }

    private var tooLarge: Refusal {
        Refusal(.contentTooLarge, "the body is more than \(limits.bytes) bytes; send fewer reports at a time")
    }

    /// Within a time: a sender that sends a byte now and then holds no place for long.
    private func collect(_ request: Request) async throws -> [UInt8] {
        try await withThrowingTaskGroup(of: [UInt8]?.self) { group in
            group.addTask {
                var body: [UInt8] = []
                for try await part in request.body {
                    guard body.count + part.readableBytes <= limits.bytes else { throw tooLarge }
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

    // MARK: Its lines

    private struct Parsed: Sendable {
        var arrivals: [Arrival] = []
        var refused: [Receipt.Reason] = []
        /// Unpacked.
        var bytes = 0
        /// What the arrivals take in memory.
        var heldBytes = 0
    }

    /// So many bytes are parsed before others get their turn on the thread.
    private static let turnBytes = 1 << 20

    private func parse(
        _ body: [UInt8],
        _ isPacked: Bool,
        _ team: String,
        _ share: IngestBudget.Share
    ) async throws -> Parsed {
        var (parsed, number, lastTurn) = (Parsed(), 0, 0)
        do {
            var lines = try BodyLines(body, isPacked: isPacked, limits)
            while let line = try lines.next() {
                number += 1
                parsed.bytes = lines.unpackedBytes
                try take(line, number, team, share, &parsed)
                if parsed.bytes - lastTurn > Self.turnBytes {
                    lastTurn = parsed.bytes
                    await Task.yield()
                }
            }
            parsed.bytes = lines.unpackedBytes
            return parsed
        } catch BodyLines.Failure.tooLarge {
            throw Refusal(
                .contentTooLarge,
                "unpacked it is more than \(limits.unpackedBytes) bytes; send fewer reports at a time"
            )
        } catch BodyLines.Failure.damaged {
            throw Refusal(.badRequest, "the body is no gzip, or cut off")
        }
    }

    private func take(
        _ line: BodyLines.Line,
        _ number: Int,
        _ team: String,
        _ share: IngestBudget.Share,
        _ parsed: inout Parsed
    ) throws {
        if case .whole(let json) = line, json.isEmpty { return }
        guard parsed.arrivals.count + parsed.refused.count < limits.records else {
            throw Refusal(.contentTooLarge, "more than \(limits.records) records in a request")
        }
        let arrival: Arrival
        do throws(RefusedArrival) {
            guard case .whole(let json) = line else {
                throw RefusedArrival("more than \(limits.recordBytes) bytes")
            }
            arrival = try Arrival(json: json, team: team)
        } catch {
            parsed.refused.append(.init(line: number, reason: error.description))
            return
        }
        guard share.grow(by: arrival.heldBytes) else { throw overload("memory") }
        parsed.arrivals.append(arrival)
        parsed.heldBytes = parsed.heldBytes.addingSaturated(arrival.heldBytes)
    }
}

/// What a request may be, and all of them together.
public struct IngestLimits: Sendable {
    /// As it comes.
    public var bytes = 16 << 20
    public var unpackedBytes = 64 << 20
    public var recordBytes = 8 << 20
    public var records = 10_000
    /// For the whole body.
    public var patience = Duration.seconds(30)
    /// Of all requests together, from their heads until they are on the disk.
    public var waitingBytes = 128 << 20
    /// Requests that are unpacked and parsed at a time.
    public var parsers = max(2, ProcessInfo.processInfo.activeProcessorCount)
    /// Requests that may wait for that.
    public var waitingParsers = 256

    public init() {}
}
