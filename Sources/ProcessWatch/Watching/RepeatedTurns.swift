import RunLoopKit
import StallDetection
import StallMonitor
import StallReports

/// What an observed loop keeps about its long turns in a row: see ``RowRule``. Confined to the watcher's thread.
struct RepeatedTurns {
    private var rule: RowRule?
    /// The number of the stall that the row is. Nil while it is not a stall.
    var number: Int?
    /// The kernel's counts from when the row's first turn was seen.
    private(set) var account: OutsideProcess.Account?
    private var samples: [StackSample] = []
    private let tick: Duration
    private static let sampleLimit = 16

    init(_ rule: StallRule) { (self.rule, tick) = (RowRule(rule), rule.tick) }

    /// Decides about the turns that a look has shown. Call it after each look.
    ///
    /// - Parameters:
    ///   - loop: The loop's rule, after its look.
    ///   - latest: The counts from when the loop was last seen to leave its rest.
    ///   - isLate: Whether the watcher was late for this look.
    mutating func look(
        at time: MonotonicInstant,
        _ loop: LoopRule,
        _ latest: OutsideProcess.Account?,
        isLate: Bool
    ) -> RowRule.Order? {
        let present = loop.presentTurn(at: time)
        noteTurn(present, latest)
        return rule?.look(
            at: time,
            ended: loop.endedTurn,
            present: present,
            isLate: isLate,
            isStalled: loop.isStalled
        )
    }

    private mutating func noteTurn(_ present: RowRule.Turn?, _ latest: OutsideProcess.Account?) {
        guard rule?.hasRow != true else { return }
        if !samples.isEmpty { samples = [] }
        if present != nil { account = latest }
    }

    /// Whether a sample of the present turn is wanted: it is long, and so was one before it.
    func wantsSample(of present: RowRule.Turn?, at time: MonotonicInstant) -> Bool {
        guard rule?.hasRow == true, let present else { return false }
        return time - present.proven.lowerBound >= tick - tick / 25
    }

    mutating func keep(_ sample: StackSample, _ reporter: OutsideReporter) {
        if let number { return reporter.add(sample, to: number) }
        if samples.count < Self.sampleLimit { samples.append(sample) }
    }

    mutating func takeSamples() -> [StackSample] { samples.take() }

    func grow(_ row: RowRule.Row, _ reporter: OutsideReporter) {
        guard let number else { return }
        reporter.count(number, row.busy)
        reporter.see(number, row.times)
        reporter.grow(number, row.times)
    }

    mutating func end(_ row: RowRule.Row, as state: StallState, _ reporter: OutsideReporter) {
        if let number {
            reporter.count(number, row.busy)
            reporter.end(number, row.times, as: state)
        }
        number = nil
    }

    mutating func release(as state: StallState, _ reporter: OutsideReporter) {
        if let row = rule?.abandon() { end(row, as: state, reporter) }
    }
}

extension RowRule.Row {
    var busy: StallReport.BusyTime {
        .init(turns: turns, totalNs: total.nanoseconds, longestNs: longest.nanoseconds)
    }
}
