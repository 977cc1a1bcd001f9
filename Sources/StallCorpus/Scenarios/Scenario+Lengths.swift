import RunLoopKit
import StallReports
import Synchronization

extension Scenario {
    /// From barely a stall to a very long one.
    static let lengths: [Scenario] = [
        // The threshold of 250 ms plus a tick of 50 ms.
        lasting("one-tick-over", .milliseconds(300), on: .mainLoop),
        lasting("one-tick-over-worker", .milliseconds(300), on: .worker),
        lasting("one-tick-over-main-actor", .milliseconds(300), on: .mainActor),
        lasting("over-a-second", .milliseconds(1_500), on: .worker),
        lasting("five-seconds", .milliseconds(5_200), on: .mainLoop),
        .stall("five-seconds-computing", .lengths, on: .mainActor, [.onCPU], culprit: "computeInOwnCode") { stage in
            stage.stall { computeInOwnCode(until: .now.advanced(by: .milliseconds(5_200))) }
        },
        .stall("short-computing", .lengths, on: .worker, [.onCPU], culprit: "computeInOwnCode") { stage in
            stage.stall { computeInOwnCode(until: .now.advanced(by: .milliseconds(320))) }
        },
        // The culprit is not the last function seen, but the one that was on the
        // stack for longest, or the function that it called for most of that time.
        .stall(
            "long-then-short",
            .lengths,
            on: .worker,
            [.blocked],
            culprit: "sleepAndCompute",
            or: "sleepInHandler"
        ) { stage in
            stage.stall { sleepAndCompute(.milliseconds(800), .milliseconds(120)) }
        },
        .stall(
            "short-then-long",
            .lengths,
            on: .mainLoop,
            [.onCPU],
            culprit: "sleepAndCompute",
            or: "computeInOwnCode"
        ) { stage in
            stage.stall { sleepAndCompute(.milliseconds(120), .milliseconds(900)) }
        },
    ]

    private static func lasting(_ name: String, _ length: Duration, on place: Place) -> Scenario {
        .stall(name, .lengths, on: place, [.blocked], culprit: "sleepInHandler") { stage in
            stage.stall { sleepInHandler(length) }
        }
    }

    /// Stalls in which no single turn reaches 250 ms.
    static let kinds: [Scenario] = [
        repeated("repeated-sleeps", on: .mainLoop, [.blocked], culprit: "sleepInHandler") {
            sleepInHandler(.milliseconds(120))
        },
        repeated("repeated-computing", on: .worker, [.onCPU], culprit: "computeInOwnCode") {
            computeInOwnCode(until: .now.advanced(by: .milliseconds(120)))
        },
        repeated("repeated-on-main-actor", on: .mainActor, [.blocked], culprit: "sleepInHandler") {
            sleepInHandler(.milliseconds(120))
        },
        congested("congested-blocks", on: .worker) { stage, work in
            for _ in 0..<Self.burst { stage.loop.perform(work) }
        },
        congested("congested-requests", on: .worker) { stage, work in
            for _ in 0..<Self.burst { stage.loop.performAsSource(work) }
        },
        congested("congested-sources", on: .mainLoop) { stage, work in
            for _ in 0..<Self.burst {
                let source = EventSource { source in
                    source.invalidate()
                    work()
                }
                stage.loop.add(source)
                source.signal()
            }
            stage.loop.wakeUp()
        },
        congested("congested-timers", on: .mainLoop) { stage, work in
            let date = MonotonicInstant.now.advanced(by: .milliseconds(1))
            for _ in 0..<Self.burst { stage.loop.add(EventTimer(at: date) { _ in work() }) }
        },
        // For the loop, everything that one drain of the main queue runs is one callout.
        congested("congested-main-actor", on: .mainActor, kinds: [.congested, .blocked]) { _, work in
            for _ in 0..<Self.burst { Task { @MainActor in work() } }
        },
    ]

    private static func repeated(
        _ name: String,
        on place: Place,
        _ verdicts: Set<Verdict>,
        culprit: String,
        _ work: @escaping @Sendable () -> Int
    ) -> Scenario {
        .stall(name, .kinds, on: place, kinds: [.repeated], verdicts, culprit: culprit) { stage in
            let whole = stage.measurement()
            for _ in 0..<9 {
                stage.run { stage.turn(work) }
                stage.rest(.milliseconds(15))
            }
            stage.run { stage.noteStall(whole.span()) }
        }
    }

    /// The number of short pieces of work that arrive at once.
    private static let burst = 250

    /// `begin`, called on the place's thread, makes `work` run `burst` times in one turn.
    private static func congested(
        _ name: String,
        on place: Place,
        kinds: Set<StallKind> = [.congested],
        _ begin: @escaping @Sendable (Stage, @escaping @Sendable () -> Void) -> Void
    ) -> Scenario {
        .stall(name, .kinds, on: place, kinds: kinds, [.onCPU], culprit: "handleShortEvent") { stage in
            let whole = Mutex<Measurement?>(nil)
            let left = Mutex(burst)
            stage.run {
                begin(stage) {
                    whole.withLock { $0 = $0 ?? Measurement(label: place.label) }
                    keep(handleShortEvent())
                    guard
                        left.withLock({ left in
                            left -= 1
                            return left == 0
                        })
                    else { return }
                    if let span = whole.withLock({ $0?.span() }) { stage.noteStall(span) }
                }
            }
            stage.waitForMarks(1)
        }
    }
}

/// The work that a busy server does hundreds of times in a row: three milliseconds each.
@inline(never)
func handleShortEvent() -> Int {
    let end = MonotonicInstant.now.advanced(by: .milliseconds(3))
    var sum = 1
    while MonotonicInstant.now < end {
        for step in 0..<500 { sum = sum &* 31 &+ step }
    }
    return sum
}

@inline(never)
func sleepAndCompute(_ sleep: Duration, _ computing: Duration) -> Int {
    let slept = sleepInHandler(sleep)
    return slept &+ computeInOwnCode(until: .now.advanced(by: computing))
}
