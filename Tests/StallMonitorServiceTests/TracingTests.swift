#if Tracing
    import InMemoryTracing
    import RunLoopKit
    import StallReports
    import Synchronization
    import TestSupport
    import Testing
    import Tracing

    @testable import StallMonitor
    @testable import StallMonitorService

    @Suite("Stalls as spans", .serialized, .timeLimit(.minutes(10)))
    struct TracingTests {
        private let tracer = InMemoryTracer()

        private func report(_ change: (inout StallReport) -> Void = { _ in }) -> StallReport {
            let start = Timestamp(seconds: 1_795_000_000, nanoseconds: 5)
            var report = StallReport.minimal(.recovered)
            report.startedAt = start
            report.detectedAt = start.advanced(byNanoseconds: 250_000_000)
            report.endedAt = start.advanced(byNanoseconds: 600_000_000)
            report.durationNs = 600_000_000
            report.thread = .init(id: 77, name: "shop")
            report.cause = .init(verdict: .blocked, summary: "The thread waited in read(2).")
            report.culprit = .init(
                function: "charge(_:)",
                file: "/src/Shop/Checkout.swift",
                line: 12,
                stack: 0,
                frame: 1
            )
            report.stacks = [
                .init(
                    thread: report.thread,
                    capturedAt: start,
                    frames: [
                        .init(address: 1, function: "read"),
                        .init(address: 2, function: "charge(_:)", file: "/src/Shop/Checkout.swift", line: 12),
                    ]
                )
            ]
            change(&report)
            return report
        }

        @Test("A stall is a span from its beginning to its end, with the loop, the place and the cause")
        func span() throws {
            StallTracing(tracer: tracer).note(.ended(report { $0.labels = ["checkout"] }))
            let span = try #require(tracer.finishedSpans.first)
            #expect(span.operationName == "loop.blocked" && span.kind == .internal && span.parentSpanID == nil)
            #expect(span.startInstant.nanosecondsSinceEpoch == 1_795_000_000_000_000_005)
            #expect(span.endInstant.nanosecondsSinceEpoch == 1_795_000_000_600_000_005)
            let attributes = span.attributes
            #expect(attributes.get("code.function.name") == .string("charge(_:)"))
            #expect(attributes.get("code.file.path") == .string("/src/Shop/Checkout.swift"))
            #expect(attributes.get("code.line.number") == .int64(12) && attributes.get("thread.id") == .int64(77))
            #expect(
                attributes.get("stall.verdict") == .string("waiting")
                    && attributes.get("stall.kind") == .string("blocked")
            )
            #expect(attributes.get("stall.labels") == .stringArray(["checkout"]))
            #expect(span.status?.code == .error && attributes.get("error.type") == .string("stall.waiting"))
            #expect(span.links.isEmpty)
        }

        @Test("The span of a stall that is no longer watched includes its excluded time, as one with an end does")
        func abandoned() throws {
            let stall = report {
                $0.state = .abandoned
                $0.endedAt = nil
                $0.durationNs = 200_000_000
                $0.excludedNs = 400_000_000
            }
            StallTracing(tracer: tracer).note(.ended(stall))
            let span = try #require(tracer.finishedSpans.first)
            #expect(span.endInstant.nanosecondsSinceEpoch == 1_795_000_000_600_000_005)
        }

        @Test("The event is an exception with the stack, at the time of the detection")
        func event() throws {
            StallTracing(tracer: tracer).note(.ended(report()))
            let event = try #require(tracer.finishedSpans.first?.events.first)
            #expect(event.name == "exception" && event.nanosecondsSinceEpoch == 1_795_000_000_250_000_005)
            #expect(event.attributes.get("exception.type") == .string("stall.waiting"))
            #expect(event.attributes.get("exception.message") == .string("The thread waited in read(2)."))
            #expect(
                event.attributes.get("exception.stacktrace")
                    == .string("read\ncharge(_:) (/src/Shop/Checkout.swift:12)")
            )
        }

        @Test("The event's stack is the one that has the culprit, with the functions that await it")
        func awaitingCulprit() throws {
            let stall = report {
                $0.stacks.append($0.stacks[0])
                $0.stacks[1].frames = [.init(address: 3, function: "load()"), .init(address: 4, function: "run")]
                let caller = StallReport.Frame(address: 5, function: "checkout()", file: "/src/Shop.swift", line: 7)
                $0.stacks[1].async = .init(from: 0, frames: [caller], ends: .task)
                $0.culprit = .init(function: "checkout()", stack: 1, frame: 0, isAwaiting: true)
            }
            StallTracing(tracer: tracer).note(.ended(stall))
            let event = try #require(tracer.finishedSpans.first?.events.first)
            let text = event.attributes.get("exception.stacktrace")
            #expect(text == .string("load()\ncheckout() (/src/Shop.swift:7)"))
        }

        @Test("The beginning or continuation of a stall gives no span")
        func others() {
            let tracing = StallTracing(tracer: tracer)
            tracing.note(.began(report()))
            tracing.note(.grew(report()))
            #expect(tracer.finishedSpans.isEmpty && tracer.activeSpans.isEmpty)
        }

        @Test(
            "The span is in the stalled request's trace, with links to at most 32 requests waiting on its thread"
        )
        func requests() async throws {
            WorkTable.addReader()
            defer { WorkTable.removeReader() }
            let table = WorkTable.current
            let requests = (0..<41).map { tracer.startSpan("request \($0)", context: .topLevel) }
            // All but the first are waiting: other tasks began them on the thread.
            for number in 1...40 {
                table.begin(
                    WorkNote(context: TracedWork(context: requests[number].context)),
                    as: .task(UInt32.max - UInt32(number))
                )
            }
            defer { for number in 1...40 { table.end(.task(UInt32.max - UInt32(number))) } }
            let stall = withStallContext(requests[0].context) {
                report { $0.thread.id = LoopThread.current().id }
            }
            let ended = withStallContext(requests[0].context) {
                table.keep(StalledWork(of: stall, at: .now), ofStall: stall.id)
                return stall
            }
            StallTracing(tracer: tracer).note(.ended(ended))
            let span = try #require(tracer.finishedSpans.first { $0.operationName == "loop.blocked" })
            #expect(span.traceID == requests[0].traceID && span.parentSpanID == requests[0].spanID)
            let linked = Set(span.links.compactMap { $0.context.inMemorySpanContext?.spanID })
            #expect(linked.count == 32 && linked.isSubset(of: Set(requests.dropFirst().map(\.spanID))))
            // After the report nothing is kept.
            #expect(table.takeContexts(ofStall: stall.id) == nil)
        }

        @Test("No request waits for a long job's thread: other workers serve it")
        func longJob() {
            WorkTable.addReader()
            defer { WorkTable.removeReader() }
            let request = tracer.startSpan("request", context: .topLevel)
            let key = WorkKey.task(UInt32.max - 41)
            WorkTable.current.begin(WorkNote(context: TracedWork(context: request.context)), as: key)
            defer { WorkTable.current.end(key) }
            let waiting = { (kind: StallKind) in
                let stall = report { ($0.kind, $0.thread.id) = (kind, LoopThread.current().id) }
                return StalledWork(of: stall, at: .now).waiting.count
            }
            #expect(waiting(.blocked) == 1 && waiting(.longJob) == 0)
        }

        @Test("A task's context is found by the task, also without an argument")
        func ofTask() async throws {
            WorkTable.addReader()
            defer { WorkTable.removeReader() }
            let number = UInt64(try #require(WorkKey.currentTaskNumber))
            try await tracer.withSpan("request") { span in
                try await withStallContext {
                    await Task.yield()
                    let stall = report { report in
                        report.stacks[0].async = .init(from: 0, frames: [], ends: .asyncLet, task: number)
                    }
                    let context = try #require(StalledWork(of: stall, at: .now).context.flatMap(TracedWork.context))
                    #expect(context.inMemorySpanContext?.spanID == span.spanID)
                }
            }
        }

        @Test(
            "A report's trace is what the tracer writes into a request's headers",
            arguments: [
                (
                    ["traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"],
                    "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
                ),
                (["x-b3-traceid": "80f198ee", "x-b3-spanid": "e457"], "80f198ee", "e457"),
                (["x-datadog-trace-id": "12", "x-datadog-parent-id": "34"], "12", "34"),
                (["traceparent": "broken", "in-memory-trace-id": "t"], "t", nil),
                (["tracestate": "a=b"], nil, nil),
                (["traceparent": "00-0-1-2"], nil, nil),
            ] as [([String: String], String?, String?)]
        )
        func headers(_ headers: [String: String], _ trace: String?, _ span: String?) {
            let found = StallReport.Trace(headers: headers)
            #expect(found?.traceID == trace && found?.spanID == span)
        }
    }
#endif
