public import CoreMetrics
public import StallMonitor
import RunLoopKit
import StallReports
import Synchronization

/// Counts stalls, and what the monitor does and costs, for the metrics backend that the server has (swift-metrics).
///
///     let metrics = StallMetrics()
///     let monitor = StallMonitor.start { metrics.note($0) }
///
/// | metric | is | dimensions |
/// |---|---|---|
/// | `stall.count` | counter: stalls that are over, with those that were only counted | `kind`, `verdict`, `type`, `watched` |
/// | `stall.duration` | timer: how long each lasted | `kind`, `verdict`, `type`, `watched` |
/// | `stall.suppressed` | counter: of these, the ones without a report | `kind` |
/// | `stall.ongoing.count`, `stall.ongoing.longest.seconds` | meters: stalls under way, and how long the longest has lasted | |
/// | `stall.watched.seconds`, `stall.watched.turns` | counters: how long was watched, and turns made (of a task pool, jobs) | `type` |
/// | `stall.turn.bucket` | counter: turns not longer than `le` seconds, each in every bucket it fits, as Prometheus has them | `type`, `le` |
/// | `stall.turn.p99.seconds`, `stall.turn.max.seconds` | meters: of the slowest watched thing, since its watch began | `type` |
/// | `stall.monitor.captures`, `stall.monitor.capture_failures`, `stall.monitor.lost` | counters: stacks taken, not taken; reports lost | |
/// | `stall.monitor.processor.seconds`, `stall.monitor.held.seconds` | counters: what the monitor has cost | |
///
/// The first three are recorded as stalls end, all others by ``update(from:)``. No dimension grows with the number of faults or threads:
/// `watched` is what reports call the loop, queue or pool, for the first 64 of them, and `other` for those that come later. `verdict` of a
/// stall that was only counted is `unknown`.
public final class StallMetrics: Sendable {
    private let factory: any MetricsFactory
    private let counters = Instruments<Counter>()
    private let sums = Instruments<FloatingPointCounter>()
    private let meters = Instruments<Meter>()
    private let timers = Instruments<Timer>()
    private let highest = Mutex<[Highest]>([])
    private let watchedNames = BoundedNames(64)

    /// The highest that one monitor's figures were found at. Each may fall for a while: what was taken for lost is written after all, a time is
    /// found to have been a pause, or another thread asked later and counts first.
    private struct Highest {
        weak var monitor: StallMonitor?
        var values: [InstrumentKey: Double] = [:]
    }

    /// - Parameter factory: the backend; the one that the server has bootstrapped unless given.
    public init(factory: (any MetricsFactory)? = nil) { self.factory = factory ?? MetricsSystem.factory }

    /// Records a stall that is over. Any thread; to be given to `StallMonitor.start` as its handler, or called by it.
    public func note(_ event: StallEvent) {
        switch event {
        case .ended(let report):
            let verdict = report.cause.verdict.canonical
            count(report.kind, verdict, report.watched.type, report.watched.label, lasting: report.durationNs)
        case .suppressed(let stall):
            count(stall.kind, .unknown, stall.type, stall.label, lasting: stall.durationNs)
            counter("stall.suppressed", [("kind", stall.kind.rawValue)]).increment()
        case .began, .grew, .fault, .mended: break
        }
    }

    private func count(
        _ kind: StallKind,
        _ verdict: Verdict,
        _ type: WatchedType,
        _ label: String,
        lasting duration: Int64
    ) {
        let dimensions = [
            ("kind", kind.rawValue), ("verdict", verdict.rawValue), ("type", type.rawValue),
            ("watched", watchedNames.name(label)),
        ]
        counter("stall.count", dimensions).increment()
        timer("stall.duration", dimensions).recordNanoseconds(duration)
    }

    /// Records what a monitor stands at. Any thread but a watched loop's, every 10 s or so. ``StallMonitorService`` does it by itself.
    public func update(from monitor: StallMonitor) {
        let health = monitor.health
        meter("stall.ongoing.count", []).set(health.stalls.count)
        meter("stall.ongoing.longest.seconds", []).set((health.stalls.first?.lasting ?? .zero) / .seconds(1))
        guard let figures = monitor.figures else { return }
        for (type, watched) in Dictionary(grouping: figures.watched, by: \.type) { update(type, watched, of: monitor) }
        raise("stall.monitor.captures", of: monitor, to: Double(figures.captures))
        raise("stall.monitor.capture_failures", of: monitor, to: Double(figures.captureFailures))
        raise("stall.monitor.lost", of: monitor, to: Double(figures.cost.lost))
        raise("stall.monitor.processor.seconds", of: monitor, to: figures.cost.processor / .seconds(1))
        raise("stall.monitor.held.seconds", of: monitor, to: figures.cost.held / .seconds(1))
    }

    private func update(_ type: WatchedType, _ watched: [StallMonitor.Figures.Watched], of monitor: StallMonitor) {
        let dimensions = [("type", type.rawValue)]
        raise(
            "stall.watched.seconds",
            dimensions,
            of: monitor,
            to: watched.reduce(.zero) { $0 + $1.time } / .seconds(1)
        )
        raise("stall.watched.turns", dimensions, of: monitor, to: watched.reduce(0) { $0 + Double($1.turns ?? 0) })
        let turns = watched.compactMap(\.turnDurations)
        guard !turns.isEmpty else { return }
        updateBuckets(type, watched, of: monitor)
        meter("stall.turn.p99.seconds", dimensions).set(Double(turns.map(\.p99Ns).max() ?? 0) / 1e9)
        meter("stall.turn.max.seconds", dimensions).set(Double(turns.map(\.maxNs).max() ?? 0) / 1e9)
    }

    /// The bounds of `stall.turn.bucket`, seconds.
    static let turnBounds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10]

    private func updateBuckets(
        _ type: WatchedType,
        _ watched: [StallMonitor.Figures.Watched],
        of monitor: StallMonitor
    ) {
        let lengths = watched.reduce(TurnHistogram()) { $0 + $1.turnLengths }
        var sum = 0.0
        let counts = lengths.counts(upTo: Self.turnBounds.map { UInt64($0 * 1e9) })
        for (bound, count) in zip(Self.turnBounds.map { "\($0)" } + ["+Inf"], counts) {
            sum += Double(count)
            raise("stall.turn.bucket", [("type", type.rawValue), ("le", bound)], of: monitor, to: sum)
        }
    }

    /// Counters only rise: by what a monitor's figure exceeds the highest that it was found at. Another monitor begins at zero.
    func raise(_ label: String, _ dimensions: [(String, String)] = [], of monitor: StallMonitor, to value: Double) {
        let key = InstrumentKey(label, dimensions)
        let difference = highest.withLock { all in
            if !all.contains(where: { $0.monitor === monitor }) {
                all.removeAll { $0.monitor == nil }
                all.append(Highest(monitor: monitor))
            }
            guard let index = all.firstIndex(where: { $0.monitor === monitor }) else { return 0.0 }
            let before = all[index].values[key] ?? 0
            all[index].values[key] = max(before, value)
            return max(0, value - before)
        }
        guard label.hasSuffix(".seconds") else { return counter(label, dimensions).increment(by: Int64(difference)) }
        sums.instrument(key) { FloatingPointCounter(label: label, dimensions: dimensions, factory: factory) }
            .increment(by: difference)
    }

    private func counter(_ label: String, _ dimensions: [(String, String)]) -> Counter {
        counters.instrument(InstrumentKey(label, dimensions)) {
            Counter(label: label, dimensions: dimensions, factory: factory)
        }
    }

    private func meter(_ label: String, _ dimensions: [(String, String)]) -> Meter {
        meters.instrument(InstrumentKey(label, dimensions)) {
            Meter(label: label, dimensions: dimensions, factory: factory)
        }
    }

    private func timer(_ label: String, _ dimensions: [(String, String)]) -> Timer {
        timers.instrument(InstrumentKey(label, dimensions)) {
            Timer(label: label, dimensions: dimensions, factory: factory)
        }
    }
}

/// The first so many names; those that come later are one.
final class BoundedNames: Sendable {
    private let known = Mutex<Set<String>>([])
    private let capacity: Int

    init(_ capacity: Int) { self.capacity = capacity }

    func name(_ name: String) -> String {
        known.withLock { known in
            guard !known.contains(name) else { return name }
            guard known.count < capacity else { return "other" }
            known.insert(name)
            return name
        }
    }
}

/// A metric and its dimensions' values.
private struct InstrumentKey: Hashable, Sendable {
    let label: String
    let dimensions: [String]

    init(_ label: String, _ dimensions: [(String, String)]) {
        (self.label, self.dimensions) = (label, dimensions.map(\.1))
    }
}

/// Instruments of one kind, each made once.
private final class Instruments<Instrument: Sendable>: Sendable {
    private let known = Mutex<[InstrumentKey: Instrument]>([:])

    /// - Parameter make: not called under the lock: a backend may do as it likes.
    func instrument(_ key: InstrumentKey, make: () -> Instrument) -> Instrument {
        if let instrument = known.withLock({ $0[key] }) { return instrument }
        let made = make()
        return known.withLock { known in
            let instrument = known[key] ?? made
            known[key] = instrument
            return instrument
        }
    }
}
