public import CoreMetrics
public import StallMonitor
import RunLoopKit
import StallReports
import Synchronization

/// Counts stalls, and the monitor's work and cost, for the server's metrics backend (swift-metrics).
///
///     let metrics = StallMetrics()
///     let monitor = StallMonitor.start { metrics.note($0) }
///
/// | metric | meaning | dimensions |
/// |---|---|---|
/// | `stall.count` | counter: stalls that have ended, including those that were only counted | `kind`, `verdict`, `type`, `watched` |
/// | `stall.duration` | timer: the duration of each | `kind`, `verdict`, `type`, `watched` |
/// | `stall.suppressed` | counter: the ones without a report | `kind` |
/// | `stall.ongoing.count`, `stall.ongoing.longest.seconds` | meters: ongoing stalls, and the duration of the longest | |
/// | `stall.watched.seconds`, `stall.watched.turns` | counters: watched time, and turns (for a task pool: jobs) | `type` |
/// | `stall.turn.bucket` | counter: turns of up to `le` seconds; cumulative, as in Prometheus | `type`, `le` |
/// | `stall.turn.p99.seconds`, `stall.turn.max.seconds` | meters: of the slowest watched loop, since it is watched | `type` |
/// | `stall.monitor.captures`, `stall.monitor.capture_failures`, `stall.monitor.lost` | counters: captured stacks, failed captures, lost reports | |
/// | `stall.monitor.processor.seconds`, `stall.monitor.held.seconds` | counters: the monitor's cost | |
///
/// The first three are recorded when stalls end, all others by ``update(from:)``. No dimension grows with the number of faults or threads:
/// `watched` is the name of the loop, queue or pool in reports for the first 64 of them, and `other` for later ones, with `_` in place of quotation
/// marks, backslashes and control characters. The `verdict` of a stall that was only counted is `unknown`.
public final class StallMetrics: Sendable {
    /// The backend that was known at the beginning.
    private let factory: (any MetricsFactory)?
    private let counters = Instruments<Counter>()
    private let sums = Instruments<FloatingPointCounter>()
    private let meters = Instruments<Meter>()
    private let timers = Instruments<Timer>()
    private let highest = Mutex<[Highest]>([])
    private let watchedNames = BoundedNames(64)

    /// The highest values of one monitor's figures so far. A figure may decrease for a while: a report that counted as lost was
    /// written, a time turned out to be a pause, or two threads called ``update(from:)`` at once.
    private struct Highest {
        weak var monitor: StallMonitor?
        var values: [InstrumentKey: Double] = [:]
    }

    /// - Parameter factory: The backend; by default the one that the server has bootstrapped. If it does so later, stalls that ended before
    ///   are not recorded.
    public init(factory: (any MetricsFactory)? = nil) { self.factory = factory ?? Self.bootstrapped }

    /// Nil before the server has bootstrapped one.
    private static var bootstrapped: (any MetricsFactory)? {
        let factory = MetricsSystem.factory
        return factory is NOOPMetricsHandler ? nil : factory
    }

    private var backend: any MetricsFactory { factory ?? MetricsSystem.factory }

    /// Whether there is a backend. An instrument that is made before records nothing later either.
    private var canRecord: Bool { factory != nil || Self.bootstrapped != nil }

    /// Records a stall that has ended. Pass it to `StallMonitor.start` as the handler, or call it there. Any thread.
    public func note(_ event: StallEvent) {
        guard canRecord else { return }
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
            ("watched", watchedNames.name(Self.dimension(label))),
        ]
        counter("stall.count", dimensions).increment()
        timer("stall.duration", dimensions).recordNanoseconds(duration)
    }

    /// swift-prometheus writes dimensions between quotation marks as they are: a quotation mark would make the server's whole page invalid.
    private static func dimension(_ label: String) -> String {
        var dimension = String.UnicodeScalarView()
        for scalar in label.unicodeScalars {
            let isSafe = scalar.properties.generalCategory != .control && scalar != "\"" && scalar != "\\"
            dimension.append(isSafe ? scalar : "_")
        }
        return String(dimension)
    }

    /// Records a monitor's present figures. Call it about every 10 s, on any thread except a watched loop's.
    /// ``StallMonitorService`` calls it.
    public func update(from monitor: StallMonitor) {
        guard canRecord else { return }
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

    /// The bounds of `stall.turn.bucket`, in seconds.
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

    /// Raises a counter by the difference between a figure and its highest value so far. The difference is zero for another
    /// monitor.
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
        sums.instrument(key) { FloatingPointCounter(label: label, dimensions: dimensions, factory: backend) }
            .increment(by: difference)
    }

    private func counter(_ label: String, _ dimensions: [(String, String)]) -> Counter {
        counters.instrument(InstrumentKey(label, dimensions)) {
            Counter(label: label, dimensions: dimensions, factory: backend)
        }
    }

    private func meter(_ label: String, _ dimensions: [(String, String)]) -> Meter {
        meters.instrument(InstrumentKey(label, dimensions)) {
            Meter(label: label, dimensions: dimensions, factory: backend)
        }
    }

    private func timer(_ label: String, _ dimensions: [(String, String)]) -> Timer {
        timers.instrument(InstrumentKey(label, dimensions)) {
            Timer(label: label, dimensions: dimensions, factory: backend)
        }
    }
}

/// The first names, up to a limit. Later ones share one name.
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

/// A metric and the values of its dimensions.
private struct InstrumentKey: Hashable, Sendable {
    let label: String
    let dimensions: [String]

    init(_ label: String, _ dimensions: [(String, String)]) {
        (self.label, self.dimensions) = (label, dimensions.map(\.1))
    }
}

/// Instruments of one kind. Each is created once.
private final class Instruments<Instrument: Sendable>: Sendable {
    private let known = Mutex<[InstrumentKey: Instrument]>([:])

    /// - Parameter make: Called without the lock, because a backend may do anything in it.
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
