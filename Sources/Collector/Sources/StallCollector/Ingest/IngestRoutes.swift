import Foundation
import HTTPTypes
import Hummingbird
import Logging
import NIOCore
import StallStore

/// Receives reports: `POST /v1/reports` and `POST /v1/logs`. The body may be compressed with gzip or Zstandard.
struct IngestRoutes {
    let queue: IngestQueue
    let budget: IngestBudget
    /// Limits how many requests are decompressed and parsed at a time.
    let parsers: TaskLimit
    /// Limits by token.
    let rates = RateLimiter<Int>()
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
        parsers = TaskLimit(width: limits.parsers, waitingLimit: limits.waitingParsers)
        (self.limits, self.retention, self.metrics, self.audit) = (limits, retention, metrics, audit)
    }

    func add(to router: some RouterMethods<CollectorContext>) {
        router.post("v1/reports") { try await answer($0, $1, .lines) }
        router.post("v1/logs") { try await answer($0, $1, .telemetry) }
    }

    private func answer(_ request: Request, _ context: CollectorContext, _ format: IngestFormat) async throws
        -> Response
    {
        let team = context.caller?.team ?? ""
        do {
            let receipt = try await take(request, context, format)
            audit?.write(.init(action: format.action, team: team, peer: context.peer, receipt: receipt))
            return try format.answer(receipt)
        } catch let refusal as Refusal {
            audit?.write(.init(action: format.action, team: team, peer: context.peer, refusal: refusal))
            throw refusal
        }
    }

    private func take(
        _ request: Request,
        _ context: CollectorContext,
        _ format: IngestFormat
    ) async throws -> IngestReceipt {
        let caller = try context.caller(.write)
        metrics.requests.add(1)
        try checkClock(request)
        let rate = try admit(caller)
        let coding = try format.coding(request)
        // This comes before the first byte of the body is read.
        let expected = try expectedBytes(request)
        guard let share = budget.share(ofBody: expected, team: caller.team) else { throw overload("memory") }
        // Also after its last use: until the records are on the disk.
        defer { withExtendedLifetime(share) {} }
        context.invite(bodyOf: request)
        let body = try await collect(request)
        // If the head announces no size, the body is usually much smaller than the largest permitted one.
        share.keep(bodyOf: body.count)
        let parsed = try await parse(body, format, coding, caller, share)
        share.shrink(by: body.count)
        if let rate { rates.charge(parsed.count - 1, to: caller.token, rate) }
        metrics.bytes.add(parsed.bytes)
        metrics.refused.add(parsed.refused.count)
        try await insert(parsed, context)
        noteRefused(parsed.refused, caller, context)
        return IngestReceipt(
            accepted: parsed.arrivals.count,
            refused: parsed.refused.count,
            reasons: Array(parsed.refused.prefix(20))
        )
    }

    private func checkClock(_ request: Request) throws(Refusal) {
        do throws(Refusal) {
            try SenderClock.check(request)
        } catch {
            metrics.overloads.add(1)
            throw error
        }
    }

    private func noteRefused(_ refused: [IngestReceipt.Reason], _ caller: Caller, _ context: CollectorContext) {
        guard let first = refused.first else { return }
        context.logger.notice(
            "refused records",
            metadata: ["team": "\(caller.team)", "count": "\(refused.count)", "first": "\(first.reason)"]
        )
    }

    /// - Returns: The rate to which the request's records are charged. Nil: no limit.
    private func admit(_ caller: Caller) throws(Refusal) -> Rate? {
        guard let perSecond = caller.recordsPerSecond ?? limits.recordsPerSecond else { return nil }
        let rate = Rate(perSecond: perSecond)
        guard let wait = rates.take(caller.token, rate) else { return rate }
        metrics.limited.add(1)
        throw Refusal(
            .tooManyRequests,
            "the token may send \(Int(saturating: perSecond)) records a second, and has sent more",
            [.retryAfter: "\(max(1, Int(saturating: (wait / .seconds(1)).rounded(.up))))"]
        )
    }

    private func parse(
        _ body: [UInt8],
        _ format: IngestFormat,
        _ coding: BodyCoding,
        _ caller: Caller,
        _ share: IngestBudget.Share
    ) async throws -> BodyParser.Parsed {
        do {
            return try await parsers.pass { [limits] in
                try await BodyParser.parse(body, format, coding, limits, team: caller.team, share)
            }
        } catch is TaskLimit.Crowded {
            throw overload("its turn")
        } catch is BodyParser.OutOfMemory {
            throw overload("memory")
        }
    }

    private func insert(_ parsed: BodyParser.Parsed, _ context: CollectorContext) async throws {
        do {
            metrics.new.add(try await queue.insert(parsed.arrivals, size: parsed.heldBytes))
        } catch is IngestQueue.Overloaded {
            throw overload("the disk")
        } catch {
            metrics.failures.add(1)
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

    // MARK: The body

    /// The size that the head announces. If it announces none, the largest permitted one.
    private func expectedBytes(_ request: Request) throws(Refusal) -> Int {
        guard let text = request.headers[.contentLength] else { return limits.bytes }
        guard let length = Int(text), length >= 0 else { throw Refusal(.badRequest, "the body's length is no number") }
        guard length <= limits.bytes else { throw tooLarge }
        return length
    }

    private var tooLarge: Refusal {
        Refusal(.contentTooLarge, "the body is more than \(limits.bytes) bytes; send fewer reports at a time")
    }

    /// Has a time limit, so that a sender that sends a byte now and then does not occupy memory for long.
    private func collect(_ request: Request) async throws -> [UInt8] {
        try await withThrowingTaskGroup(of: [UInt8]?.self) { group in
            group.addTask { try await read(request.body) }
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

    private func read(_ stream: RequestBody) async throws -> [UInt8] {
        var body: [UInt8] = []
        do {
            for try await part in stream {
                guard body.count + part.readableBytes <= limits.bytes else { throw tooLarge }
                body += part.readableBytesView
            }
        } catch let error where !(error is Refusal || error is CancellationError) {
            // It is not the store's failure, and no reason for the sender to wait.
            throw Refusal(.badRequest, "the body was cut off, or its transfer encoding is wrong")
        }
        return body
    }
}
