import StallReports

// Pure functions: they compare the stalls that were made with the stalls that were reported.

extension Outcome {
    /// The outcome of a scenario that was not played to its end.
    init(_ scenario: Scenario, skipped: String? = nil, failure: String? = nil) {
        self.init(
            name: scenario.name,
            part: scenario.part,
            isStall: scenario.isStall,
            skipped: skipped,
            failure: failure
        )
    }

    init(_ scenario: Scenario, _ receipt: Receipt, _ reports: [StallReport]) {
        self.init(scenario, skipped: receipt.skipped, failure: receipt.failure)
        guard skipped == nil, failure == nil else { return }
        var unclaimed = reports
        if case .stall(let expected) = scenario.expectation {
            if receipt.stalls.count != expected.count {
                failure = "it made \(receipt.stalls.count) stalls, not \(expected.count)"
            }
            stalls = receipt.stalls.map { span in
                let report = unclaimed.takeFirst { $0.isAbout(span, expected) }
                return StallFinding(expected, span, report)
            }
        }
        let inPieces = receipt.stalls.filter(\.wasKept)
        let alarms = unclaimed.filter { report in
            !report.isTrue(of: receipt.slowTurns) && !inPieces.contains { report.isAbout($0) }
        }
        excused = unclaimed.count - alarms.count
        let isRepetition = { (report: StallReport) in receipt.stalls.contains { report.isAbout($0) } }
        toldAgain = alarms.filter(isRepetition).map(FoundStall.init)
        falseAlarms = alarms.filter { !isRepetition($0) }.map(FoundStall.init)
    }
}

extension StallFinding {
    init(_ expected: ExpectedStall, _ span: Receipt.Span, _ report: StallReport?) {
        let verdicts = expected.verdicts.union(span.otherTruth(than: expected.verdicts))
        self.init(
            expected: Expected(
                kinds: expected.kinds.map(\.rawValue).sorted(),
                verdicts: verdicts.map(\.rawValue).sorted(),
                culprit: expected.culprits.joined(separator: "/"),
                owner: expected.owner,
                lengthMs: Double(span.wallNs) / 1e6,
                cpuMs: Double(span.cpuNs) / 1e6,
                runDelayMs: Double(span.runDelayNs) / 1e6
            )
        )
        guard let report else { return }
        let found = FoundStall(report)
        self.found = found
        isKindRight = expected.kinds.contains(report.kind)
        isVerdictRight = verdicts.contains(report.cause.verdict)
        isCulpritRight = expected.culprits.contains { found.culprit?.contains("\($0)(") == true }
        isOwnerRight = expected.owner.map { $0 == found.owner }
        let (start, end) = report.errors(against: span)
        if expected.bounds != .none { startErrorMs = start }
        if expected.bounds == .both { endErrorMs = end }
    }
}

extension Receipt.Span {
    /// The turn took about a tick: five such turns in a row are a stall (`repeated`).
    var isSlowTurn: Bool { wallNs >= 45_000_000 }

    /// The thread was runnable and did not run for half of the time.
    fileprivate var wasKept: Bool { runDelayNs > 0 && runDelayNs * 2 >= wallNs }

    /// A thread that was kept from a CPU for half of the time, or for about as long as it computed, was starved, whatever it was
    /// meant to do: a report of that verdict is right. (If the time was measured by another thread, nothing is known.)
    fileprivate func otherTruth(than verdicts: Set<Verdict>) -> Set<Verdict> {
        let competed = verdicts.contains(.onCPU) && runDelayNs > 0 && runDelayNs * 10 >= cpuNs * 8
        return wasKept || competed ? [.starved] : []
    }
}

extension StallReport {
    /// The end of the stall, or the latest time that the report covers.
    private var latest: Timestamp { endedAt ?? startedAt.advanced(byNanoseconds: durationNs) }

    func isAbout(_ span: Receipt.Span) -> Bool {
        watched.label == span.label && startedAt < span.endedAt && span.startedAt < latest
    }

    /// Whether turns that were meant to be short really made such a stall, because the machine was busy with other work. Only the
    /// time of the callout was measured: the loop was busy for a moment before and after it.
    func isTrue(of slowTurns: [Receipt.Span]) -> Bool {
        let own = slowTurns.filter(isAbout)
        return kind == .repeated ? own.count >= 4 : own.contains { $0.wallNs >= 240_000_000 }
    }

    /// With a faked clock the times are not compared.
    fileprivate func isAbout(_ span: Receipt.Span, _ expected: ExpectedStall) -> Bool {
        expected.bounds == .none ? watched.label == span.label : isAbout(span)
    }

    /// The errors of start and end, in milliseconds.
    fileprivate func errors(against span: Receipt.Span) -> (Double, Double) {
        (
            abs(Double(startedAt.nanoseconds(since: span.startedAt)) / 1e6),
            abs(Double(latest.nanoseconds(since: span.endedAt)) / 1e6)
        )
    }
}

extension Array {
    /// Removes and returns the first element that fits.
    fileprivate mutating func takeFirst(where fits: (Element) -> Bool) -> Element? {
        firstIndex(where: fits).map { remove(at: $0) }
    }
}

extension StallReport {
    /// The name of the thread that holds what the stalled thread waits for. Defined in this file only, so that the rest of the
    /// judge does not depend on the report model's names.
    var ownerName: String? {
        cause.lock?.owner?.name
    }
}
