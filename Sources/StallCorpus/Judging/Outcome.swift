import StallReports

/// The outcome of one scenario.
package struct Outcome: Codable, Sendable {
    package var name: String
    package var part: Scenario.Part
    package var isStall: Bool
    /// The stalls that were made, each with its report.
    var stalls: [JudgedStall] = []
    /// Reports without a stall that was made.
    var falseAlarms: [FoundStall] = []
    /// Further reports of a stall that was already reported.
    var toldAgain: [FoundStall] = []
    /// Reports of turns that were meant to be short and really were long,
    /// and of the parts of a stall whose thread was kept from a CPU.
    var excused = 0
    /// The number of times it was played.
    package var attempts = 1
    package var skipped: String?
    package var failure: String?

    /// Whether everything was reported correctly. A skipped scenario does not count as a failure.
    package var passed: Bool {
        skipped != nil || (failure == nil && falseAlarms.isEmpty && toldAgain.isEmpty && stalls.allSatisfy(\.passed))
    }
}

/// A stall that was made.
struct JudgedStall: Codable, Sendable {
    var expected: Expected
    /// Nil if it was missed.
    var found: FoundStall?
    var isKindRight = false
    var isVerdictRight = false
    var isCulpritRight = false
    /// Nil if no owner is expected.
    var isOwnerRight: Bool?
    /// Nil if it cannot be compared.
    var startErrorMs: Double?
    var endErrorMs: Double?

    /// The expected report, and what the stalled thread measured of itself.
    struct Expected: Codable, Sendable {
        var kinds: [String]
        var verdicts: [String]
        var culprit: String
        var owner: String?
        var lengthMs: Double
        var cpuMs: Double
        var runDelayMs: Double
    }

    var passed: Bool { found != nil && isKindRight && isVerdictRight && isCulpritRight && isOwnerRight != false }
}

/// A stall as it was reported.
struct FoundStall: Codable, Sendable {
    var id: String
    var kind: String
    var label: String
    var verdict: String
    var culprit: String?
    var owner: String?
    var summary: String
    var lengthMs: Double
    /// From the reported start to the detection.
    var detectedAfterMs: Double

    init(_ report: StallReport) {
        id = "\(report.id)"
        kind = report.kind.rawValue
        label = report.watched.label
        verdict = report.cause.verdict.rawValue
        culprit = report.culprit?.function
        owner = report.ownerName
        summary = report.cause.summary
        lengthMs = Double(report.durationNs) / 1e6
        detectedAfterMs = Double(report.detectedAt.nanoseconds(since: report.startedAt)) / 1e6
    }
}

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
                return JudgedStall(expected, span, report)
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

extension JudgedStall {
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
        // A function, or the initial value of a variable.
        isCulpritRight = expected.culprits.contains { found.culprit == $0 || found.culprit?.contains("\($0)(") == true }
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

extension Outcome {
    /// One line for users, printed when the scenario has ended.
    package var line: String {
        if let skipped { return "skipped  \(name): \(skipped)" }
        return passed ? "ok       \(name)" : "NOT OK   \(lines.joined(separator: "\n         "))"
    }

    /// The expected values, and the values found instead.
    var lines: [String] {
        guard !passed else { return [] }
        var lines = [failure.map { "\(name): \($0)" } ?? name]
        for stall in stalls where !stall.passed { lines += stall.lines }
        for report in toldAgain { lines.append("  told again: \(report.text)") }
        for alarm in falseAlarms { lines.append("  expected nothing, found \(alarm.text)") }
        return lines
    }
}

extension JudgedStall {
    fileprivate var lines: [String] {
        let own =
            "\(expected.lengthMs.oneDecimal) ms, on a CPU \(expected.cpuMs.oneDecimal), kept from one \(expected.runDelayMs.oneDecimal)"
        let wanted = [
            expected.kinds.joined(separator: "/"), expected.verdicts.joined(separator: "/"), expected.culprit,
        ]
        return [
            "  expected \(wanted.joined(separator: ", "))\(expected.owner.map { ", held by \($0)" } ?? ""); it took \(own)",
            "  found    \(found?.text ?? "nothing")",
        ]
    }
}

extension FoundStall {
    fileprivate var text: String {
        "\(kind), \(verdict), \(culprit ?? "no culprit")\(owner.map { ", held by \($0)" } ?? "");"
            + " \(label), \(lengthMs.oneDecimal) ms: \(summary)"
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
