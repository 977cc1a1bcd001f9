#if Tracing
    public import StallMonitor
    import StallReports
    public import Tracing

    // Only with the package's trait `Tracing`, so that servers without it do not build that package.

    /// Makes a span for each reported stall, in the trace of the stalled request (swift-distributed-tracing).
    ///
    ///     let tracing = StallTracing()
    ///     let monitor = StallMonitor.start { tracing.note($0) }
    ///
    /// When a stall has ended, the span `loop.blocked` is created with the stall's beginning and end. Its parent is the context
    /// that `withStallContext` has set for the stalled work; without one the span begins a new trace. It links to the contexts of
    /// up to 32 other requests that had begun on the stalled thread and had to wait.
    ///
    /// | attribute | value |
    /// |---|---|
    /// | `code.function.name`, `code.file.path`, `code.line.number` | of the culprit, if known |
    /// | `thread.id`, `thread.name` | of the stalled thread |
    /// | `error.type` | `stall.` and the verdict |
    /// | `stall.id`, `stall.kind`, `stall.verdict`, `stall.state`, `stall.fingerprint` | the report's |
    /// | `stall.watched.type`, `stall.watched.label`, `stall.labels` | the stalled thing, and the server's names for the work |
    ///
    /// The event `exception`, at the time of detection, has `exception.type` (the `error.type`), `exception.message` and
    /// `exception.stacktrace`: the stack with the culprit, and the functions that await it.
    /// Stalls that are only counted (see `RepeatRule`) have no span.
    public struct StallTracing: Sendable {
        private let tracer: (any Tracer)?

        /// - Parameter tracer: Creates the spans. Nil: the tracer that the server has bootstrapped when the first span is
        ///   created.
        public init(tracer: (any Tracer)? = nil) { self.tracer = tracer }

        /// Creates the span if the event is the end of a stall. Pass it to `StallMonitor.start` as the handler, or call it there: it runs on
        /// the reporter's thread and costs the loop nothing.
        public func note(_ event: StallEvent) {
            guard case .ended(let report) = event else { return }
            let work = WorkTable.current.takeContexts(ofStall: report.id).map { work in
                (
                    stalled: work.stalled.flatMap(TracedWork.context),
                    waiting: work.waiting.compactMap(TracedWork.context)
                )
            }
            record(report, in: work?.stalled, waiting: work?.waiting ?? [])
        }

        func record(_ report: StallReport, in parent: ServiceContext?, waiting: [ServiceContext]) {
            let tracer = tracer ?? InstrumentationSystem.tracer
            let span = tracer.startSpan(
                "loop.blocked",
                context: parent ?? .topLevel,
                ofKind: .internal,
                at: report.startedAt.instant
            )
            span.updateAttributes { $0.merge(SpanAttributes(report.spanAttributes)) }
            span.addEvent(report.exceptionEvent)
            for context in waiting {
                span.addLink(SpanLink(context: context, attributes: ["stall.role": .string("waiting")]))
            }
            span.setStatus(SpanStatus(code: .error, message: report.cause.summary))
            span.end(at: (report.endedAt ?? report.knownUntil).instant)
        }
    }

    /// Binds a context to the calling task while `body` runs: a stall then belongs to its trace. The report gets the ids of trace and
    /// span, and ``StallTracing`` makes its span there.
    ///
    /// For a server's middleware: call it around the handling of a request, inside the request's span. Child tasks do not inherit
    /// the context. It costs two clock reads and two short locks, and nothing while no monitor runs.
    ///
    /// - Parameter context: The task's context by default. Nil: only `body` runs.
    public nonisolated(nonsending) func withStallContext<Value, Failure: Error>(
        _ context: ServiceContext? = .current,
        _ body: nonisolated(nonsending) () async throws(Failure) -> Value
    ) async throws(Failure) -> Value {
        guard let context else { return try await body() }
        return try await withWorkNote(WorkNote(context: TracedWork(context: context)), body)
    }

    /// Binds a context to the calling thread while `body` runs: for code outside tasks, such as a channel handler on its event loop.
    public func withStallContext<Value, Failure: Error>(
        _ context: ServiceContext? = .current,
        _ body: () throws(Failure) -> Value
    ) throws(Failure) -> Value {
        guard let context else { return try body() }
        return try withWorkNote(WorkNote(context: TracedWork(context: context)), body)
    }

    /// A context that is bound to a task or a thread.
    struct TracedWork: WorkContext {
        let context: ServiceContext

        static func context(of work: any WorkContext) -> ServiceContext? { (work as? TracedWork)?.context }

        /// The ids that the server's tracer writes into the headers of a request.
        var trace: StallReport.Trace? {
            var headers: [String: String] = [:]
            InstrumentationSystem.instrument.inject(context, into: &headers, using: HeaderInjector())
            return StallReport.Trace(headers: headers)
        }

        private struct HeaderInjector: Injector {
            func inject(_ value: String, forKey key: String, into headers: inout [String: String]) {
                headers[key.lowercased()] = value
            }
        }
    }

    extension StallReport.Trace {
        /// Reads W3C's `traceparent`, or the headers of other tracers that have one for each id: `x-b3-traceid`, `x-b3-spanid`.
        ///
        /// - Parameter headers: their names in lower case.
        init?(headers: [String: String]) {
            let parts = headers["traceparent"]?.split(separator: "-", omittingEmptySubsequences: false) ?? []
            if parts.count >= 4, parts[1].count == 32, parts[2].count == 16 {
                self.init(traceID: String(parts[1]), spanID: String(parts[2]))
                return
            }
            let value = { (names: [String]) in
                headers.filter { header in names.contains { header.key.hasSuffix($0) } }.min { $0.key < $1.key }?.value
            }
            guard let trace = value(["trace-id", "traceid"]) else { return nil }
            self.init(traceID: trace, spanID: value(["span-id", "spanid", "parent-id"]))
        }
    }

    extension StallReport {
        fileprivate var spanAttributes: [String: SpanAttribute] {
            var attributes: [String: SpanAttribute] = [
                "stall.id": .string("\(id)"), "stall.kind": .string(kind.rawValue),
                "stall.verdict": .string(cause.verdict.canonical.rawValue), "stall.state": .string(state.rawValue),
                "stall.fingerprint": .string("\(fingerprint)"), "stall.watched.type": .string(watched.type.rawValue),
                "stall.watched.label": .string(watched.label), "thread.id": .int64(Int64(thread.id)),
                "error.type": .string(errorType),
            ]
            attributes["thread.name"] = thread.name.map { .string($0) }
            attributes["code.function.name"] = culpritName.map { .string($0) }
            attributes["code.file.path"] = culprit?.file.map { .string($0) }
            attributes["code.line.number"] = culprit?.line.map { .int64(Int64($0)) }
            attributes["stall.labels"] = labels.map { .stringArray($0) }
            return attributes
        }

        fileprivate var exceptionEvent: SpanEvent {
            SpanEvent(
                name: "exception",
                at: detectedAt.instant,
                attributes: [
                    "exception.type": .string(errorType),
                    "exception.message": .string(cause.summary),
                    "exception.stacktrace": .string(stackTrace),
                ]
            )
        }

        /// Until when a stall was seen that is no longer watched.
        fileprivate var knownUntil: Timestamp {
            startedAt.advanced(byNanoseconds: durationNs).advanced(byNanoseconds: excludedNs ?? 0)
        }

        private var errorType: String { "stall." + cause.verdict.canonical.rawValue }

        /// The stack with the culprit, and the functions that await it, which the culprit may be one of. Innermost function first. At most 64
        /// frames, because receivers truncate or refuse longer values.
        private var stackTrace: String {
            let blamed = culprit.flatMap { stacks.indices.contains($0.stack) ? stacks[$0.stack] : nil }
            return ((blamed ?? stacks.first)?.callers(from: 0) ?? []).prefix(64).map { frame in
                let place = frame.file.map { " (\($0)\(frame.line.map { ":\($0)" } ?? ""))" } ?? ""
                return (frame.function ?? "\(frame.address)") + place
            }.joined(separator: "\n")
        }
    }

    extension Timestamp {
        /// Tracers count from 1970. An earlier time becomes the start of 1970.
        fileprivate var instant: DefaultTracerClock.Timestamp {
            let nanoseconds = max(0, self.nanoseconds(since: Timestamp(seconds: 0)))
            return DefaultTracerClock.Timestamp(nanosecondsSinceEpoch: UInt64(nanoseconds))
        }
    }
#endif
