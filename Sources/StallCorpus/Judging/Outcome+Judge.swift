import StallReports

// Pure: what was made against what was reported.

extension Outcome {
    /// A scenario that was not played to its end.
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
    /// About a tick: five of these in a row are a stall of their own.
    var isSlowTurn: Bool { wallNs >= 45_000_000 }

    /// The thread could have run, and did not for half of the time.
    fileprivate var wasKept: Bool { runDelayNs > 0 && runDelayNs * 2 >= wallNs }

    /// A thread that was kept from a CPU for half of the time, or for about as long as it computed, was starved, whatever it was to do: a
    /// report that says so is right. (Where others than the thread itself measured, nothing is known.)
    fileprivate func otherTruth(than verdicts: Set<Verdict>) -> Set<Verdict> {
        let competed = verdicts.contains(.onCPU) && runDelayNs > 0 && runDelayNs * 10 >= cpuNs * 8
        return wasKept || competed ? [.starved] : []
    }
}

extension StallReport {
    /// When it ended, or had come to.
    private var latest: Timestamp { endedAt ?? startedAt.advanced(byNanoseconds: durationNs) }

    func isAbout(_ span: Receipt.Span) -> Bool {
        watched.label == span.label && startedAt < span.endedAt && span.startedAt < latest
    }

    /// Whether turns that were to be short really made such a stall, on a machine that had other things to do. Theirs is the time of the
    /// callout alone: the loop was away for a moment before and after.
    func isTrue(of slowTurns: [Receipt.Span]) -> Bool {
        let own = slowTurns.filter(isAbout)
        return kind == .repeated ? own.count >= 4 : own.contains { $0.wallNs >= 240_000_000 }
    }

    /// With a faked clock the times say nothing.
    fileprivate func isAbout(_ span: Receipt.Span, _ expected: ExpectedStall) -> Bool {
        expected.bounds == .none ? watched.label == span.label : isAbout(span)
    }

    /// How far start and end are off, in milliseconds.
    fileprivate func errors(against span: Receipt.Span) -> (Double, Double) {
        (
            abs(Double(startedAt.nanoseconds(since: span.startedAt)) / 1e6),
            abs(Double(latest.nanoseconds(since: span.endedAt)) / 1e6)
        )
    }
}

extension Array {
    /// Takes the first element that fits out of the array.
    fileprivate mutating func takeFirst(where fits: (Element) -> Bool) -> Element? {
        firstIndex(where: fits).map { remove(at: $0) }
    }
}

extension StallReport {
    /// The thread that holds what the stalled one waits for, by its name. One file, so that the judge does not follow the model's wording.
    var ownerName: String? {
        cause.lock?.owner?.name
    }
}
