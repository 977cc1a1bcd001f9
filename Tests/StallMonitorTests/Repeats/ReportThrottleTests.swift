import RunLoopKit
import StallReports
import Testing

@testable import StallMonitor

/// Times are seconds since some start.
@Suite("Which stalls are reported, and which only counted")
struct ReportThrottleTests {
    private static func time(_ seconds: Double) -> MonotonicInstant {
        MonotonicInstant(nanoseconds: 1_000_000_000_000 + UInt64(seconds * 1e9))
    }

    /// A process that stalls again and again.
    private struct Run {
        var throttle: ReportThrottle
        var reported: [Double] = []
        var last: StallReport.Repeats?

        init(_ rule: RepeatRule) { throttle = ReportThrottle(rule: rule) }

        /// - Returns: why it was not reported.
        @discardableResult
        mutating func stall(_ fault: UInt8 = 1, at seconds: Double, lasting length: Double = 0.3) -> SuppressionReason?
        {
            let (name, time) = (Self.name(fault), ReportThrottleTests.time(seconds))
            let length = Duration.nanoseconds(Int64(length * 1e9))
            if let reason = throttle.refusal(of: name, lasting: length, at: time) {
                throttle.count(Self.one(seconds, length), of: name, reason, at: time)
                return reason
            }
            last = throttle.begin(ULID(rawValue: UInt128(reported.count + 1)), name, at: time)
            throttle.note(length, of: name)
            reported.append(seconds)
            return nil
        }

        static func name(_ fault: UInt8) -> Fingerprint {
            .make(kind: .blocked, frames: [.init(address: 1, symbol: "f\(fault)", own: true)], modules: [])
        }

        static func one(_ seconds: Double, _ length: Duration) -> StallReport.Repeats {
            let start = Timestamp(seconds: Int64(seconds), nanoseconds: 0)
            let nanoseconds = length.nanoseconds
            return .init(
                count: 1,
                report: nil,
                firstAt: start,
                lastAt: start.advanced(byNanoseconds: nanoseconds),
                totalNs: nanoseconds,
                longestNs: nanoseconds
            )
        }
    }

    private let unlimited = RepeatRule(reportsPerMinute: nil, bytesPerMinute: nil)

    @Test(
        "A fault's first stall is reported, others within a minute are counted; another fault is reported at once"
    )
    func window() {
        var run = Run(unlimited)
        #expect(run.stall(at: 0) == nil)
        #expect(run.stall(at: 1) == .repeated && run.stall(at: 59.9) == .repeated)
        #expect(run.stall(2, at: 2) == nil)
        #expect(run.stall(at: 60.1) == nil)
        #expect(run.throttle.suppressed == [.repeated: 2])
    }

    @Test("The next report says how many there were, when, how long, and which report they repeat")
    func takenOver() throws {
        var run = Run(unlimited)
        run.stall(at: 0)
        for second in 1...5 { run.stall(at: Double(second), lasting: second == 3 ? 0.5 : 0.3) }
        let waiting = try #require(run.throttle.counted.first)
        #expect(waiting.fingerprint == Run.name(1) && waiting.repeats.count == 5)
        run.stall(at: 61)
        let repeats = try #require(run.last)
        #expect(repeats == waiting.repeats && repeats.report == ULID(rawValue: 1))
        #expect(repeats.firstAt.seconds == 1 && repeats.lastAt.seconds == 5)
        #expect(repeats.totalNs == 1_700_000_000 && repeats.longestNs == 500_000_000)
        #expect(run.throttle.counted.isEmpty)
    }

    @Test("A fault that continues is reported at growing intervals, at most an hour")
    func backoff() {
        var run = Run(unlimited)
        for second in stride(from: 0.0, to: 6 * 3600, by: 5) { run.stall(at: second) }
        let distances = zip(run.reported.dropFirst(), run.reported).map { $0 - $1 }
        #expect(distances == [60, 120, 240, 480, 960, 1920, 3600, 3600, 3600, 3600])
        let counted = run.throttle.suppressed.values.reduce(0, +)
        #expect(Int(counted) + run.reported.count == 6 * 720)
    }

    @Test("A fault that recurs after each window is also reported less often; after a rest it starts again")
    func rest() {
        var run = Run(unlimited)
        for second in stride(from: 0.0, to: 600, by: 61) { run.stall(at: second) }
        #expect(run.reported == [0, 61, 183, 427])
        // Its window is 8 minutes by now.
        #expect(run.stall(at: 427 + 1200) == nil && run.stall(at: 427 + 1261) == nil)
    }

    @Test("A stall that is more severe than all reported ones, or twice as long, is reported anyway")
    func worse() {
        var run = Run(unlimited)
        #expect(run.stall(at: 0, lasting: 0.3) == nil)
        #expect(run.stall(at: 1, lasting: 0.59) == .repeated)
        #expect(run.stall(at: 2, lasting: 0.6) == nil)
        #expect(run.stall(at: 3, lasting: 1.0) == nil)
        #expect(run.stall(at: 4, lasting: 1.9) == .repeated)
        #expect(run.stall(at: 5, lasting: 2.0) == nil)
        #expect(run.stall(at: 6, lasting: 5.0) == nil)
        #expect(run.stall(at: 7, lasting: 9.0) == .repeated)
    }

    @Test("A storm of faults: a burst is reported, then a fixed number a minute; all others are counted")
    func reportRate() {
        var run = Run(RepeatRule(window: .zero, reportsPerMinute: 30, burst: 10, bytesPerMinute: nil))
        for index in 0..<600 { run.stall(UInt8(index % 200), at: Double(index) * 0.1) }
        #expect(run.reported.count == 10 + 29)
        #expect(run.throttle.suppressed == [.reportRate: Int64(600 - run.reported.count)])
    }

    @Test("After too many bytes, no report is begun until the rate is kept again")
    func byteRate() {
        var run = Run(RepeatRule(window: .zero, reportsPerMinute: nil, bytesPerMinute: 6000))
        #expect(run.stall(1, at: 0) == nil)
        run.throttle.noteBytes(7000, at: Self.time(0))
        #expect(run.stall(2, at: 9) == .byteRate)
        #expect(run.stall(3, at: 11) == nil)
        run.throttle.noteBytes(7500, at: Self.time(11))
        #expect(run.stall(4, at: 12) == .byteRate)
    }

    @Test("Nothing is held back if every stall is to be reported")
    func everyStall() {
        var run = Run(.everyStall)
        for second in 0..<1000 { #expect(run.stall(at: Double(second) / 1000) == nil) }
        #expect(run.throttle.suppressed.isEmpty && run.throttle.counted.isEmpty)
    }

    @Test("Counts are kept by loop and kind, and a report takes over only those of its own")
    func origins() {
        var throttle = ReportThrottle(rule: unlimited)
        let (main, nio) = (Self.origin("main"), Self.origin("nio", .eventLoop))
        let (name, one) = (Run.name(1), Run.one(1, .seconds(1)))
        #expect(throttle.begin(ULID(rawValue: 1), name, from: main, at: Self.time(0)) == nil)
        throttle.count(one, of: name, from: main, .repeated, at: Self.time(1))
        let all = throttle.count(one, of: name, from: nio, .repeated, at: Self.time(2))
        #expect(all.count == 2 && all.report == ULID(rawValue: 1))
        #expect(Set(throttle.counted.map(\.label)) == ["main", "nio"])
        #expect(Set(throttle.counted.map(\.type)) == [.runLoop, .eventLoop])
        #expect(throttle.counted.allSatisfy { $0.kind == .blocked && $0.repeats.count == 1 })
        #expect(throttle.begin(ULID(rawValue: 2), name, from: main, at: Self.time(3))?.count == 1)
        #expect(throttle.counted.map(\.label) == ["nio"])
        // A rename moves all of the fault's counts.
        throttle.count(one, of: Run.name(2), from: nio, .repeated, at: Self.time(4))
        throttle.rename(name, Run.name(2))
        #expect(throttle.counted.map(\.label) == ["nio"] && throttle.counted.map(\.repeats.count) == [2])
    }

    @Test("Counts of loops with one name in two services are kept by service")
    func services() {
        var throttle = ReportThrottle(rule: unlimited)
        for service in ["node", "shop", "shop"] {
            let origin = QuietLoop("main").stall(service: service).origin
            throttle.count(Run.one(1, .seconds(1)), of: Run.name(1), from: origin, .repeated, at: Self.time(1))
        }
        let counted = Dictionary(uniqueKeysWithValues: throttle.counted.map { ($0.service, $0.repeats.count) })
        #expect(counted == ["node": 1, "shop": 2])
    }

    @Test("Memory is bounded for any number of loops, and every stall is counted")
    func manyOrigins() {
        var throttle = ReportThrottle(rule: unlimited)
        for number in 0..<1000 {
            let origin = Self.origin("loop \(number)")
            throttle.count(Run.one(1, .seconds(1)), of: Run.name(1), from: origin, .repeated, at: Self.time(1))
        }
        #expect(throttle.counted.count == KnownFault.originLimit + 1)
        #expect(throttle.counted.map(\.repeats.count).reduce(0, +) == 1000)
        #expect(throttle.counted.count { $0.label == nil } == 1)
    }

    private static func origin(_ label: String, _ type: WatchedType = .runLoop) -> StallOrigin {
        StallOrigin(label: label, type: type, kind: .blocked)
    }

    @Test("A fault whose later samples show another function is that other fault from then on")
    func renamed() {
        var run = Run(unlimited)
        run.stall(1, at: 0)
        run.throttle.rename(Run.name(1), Run.name(2))
        #expect(run.stall(1, at: 1) == .repeated && run.stall(2, at: 2) == .repeated)
        #expect(run.throttle.counted.map(\.fingerprint) == [Run.name(2)])
        #expect(run.throttle.counted.map(\.repeats.count) == [2])
        // And back again: this makes no circle.
        run.throttle.rename(Run.name(2), Run.name(1))
        #expect(run.stall(1, at: 3) == .repeated && run.stall(2, at: 4) == .repeated)
        #expect(run.throttle.counted.map(\.repeats.count) == [4])
    }

    @Test("A stall without a stack that turns out to be a known fault does not rename other such stalls")
    func renamedWithoutStack() {
        var run = Run(unlimited)
        run.stall(1, at: 0)
        run.throttle.rename(Run.name(1), Run.name(2), isLasting: false)
        #expect(run.stall(2, at: 1) == .repeated && run.stall(1, at: 2) == nil)
        #expect(run.throttle.known(Run.name(1)) == Run.name(1))
    }

    @Test("Memory is bounded for any number of faults, and every stall is in the sum")
    func bounded() {
        var run = Run(RepeatRule(window: .seconds(60), reportsPerMinute: 1, burst: 1, bytesPerMinute: nil))
        var counted = 0
        for index in 0..<5000 {
            let name = Fingerprint.make(
                kind: .blocked,
                frames: [.init(address: 1, symbol: "g\(index)", own: true)],
                modules: []
            )
            let time = Self.time(Double(index) / 1000)
            guard let reason = run.throttle.refusal(of: name, lasting: .seconds(1), at: time) else {
                _ = run.throttle.begin(.make(), name, at: time)
                continue
            }
            run.throttle.count(Run.one(1, .seconds(1)), of: name, reason, at: time)
            counted += 1
        }
        #expect(run.throttle.counted.count <= ReportThrottle.faultLimit)
        #expect(run.throttle.suppressed.values.reduce(0, +) == Int64(counted) && counted > 4900)
    }
}
