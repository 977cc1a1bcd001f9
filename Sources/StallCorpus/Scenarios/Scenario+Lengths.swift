import RunLoopKit
import StallReports

extension Scenario {
    /// From hardly a stall to a very long one.
    static let lengths: [Scenario] = [
        // The threshold of 250 ms and a tick of 50 ms.
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
        // The culprit is what lasted, not what was seen last.
        .stall("long-then-short", .lengths, on: .worker, [.blocked, .onCPU], culprit: "sleepInHandler") { stage in
            stage.stall {
                let slept = sleepInHandler(.milliseconds(700))
                return slept &+ computeInOwnCode(until: .now.advanced(by: .milliseconds(150)))
            }
        },
        .stall("short-then-long", .lengths, on: .mainLoop, [.onCPU], culprit: "computeInOwnCode") { stage in
            stage.stall {
                let slept = sleepInHandler(.milliseconds(120))
                return slept &+ computeInOwnCode(until: .now.advanced(by: .milliseconds(900)))
            }
        },
    ]

    private static func lasting(_ name: String, _ length: Duration, on place: Place) -> Scenario {
        .stall(name, .lengths, on: place, [.blocked], culprit: "sleepInHandler") { stage in
            stage.stall { sleepInHandler(length) }
        }
    }

    /// Stalls that no single turn of 250 ms shows.
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
        congested("congested-source", on: .worker) { stage, isOver, done in
            let source = EventSource { source in
                keep(handleShortEvent())
                if isOver() {
                    source.invalidate()
                    done()
                } else {
                    source.signal()
                }
            }
            stage.loop.add(source)
            source.signalAndWake()
        },
        congested("congested-blocks", on: .mainLoop) { stage, isOver, done in
            stage.loop.perform { enqueueNext(on: stage.loop, isOver, done) }
        },
        congested("congested-main-actor", on: .mainActor) { _, isOver, done in
            Task { @MainActor in
                while !isOver() {
                    keep(handleShortEvent())
                    await Task.yield()
                }
                done()
            }
        },
        // All in one pass over a queue, in which nothing is published.
        congested("congested-pass", on: .worker, kinds: [.congested, .blocked]) { stage, _, done in
            stage.loop.perform {
                for _ in 0..<300 { stage.loop.perform { keep(handleShortEvent()) } }
                stage.loop.perform(done)
            }
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

    /// `play` has short work done over and over, asks whether it is over, and says when it is done.
    private static func congested(
        _ name: String,
        on place: Place,
        kinds: Set<StallKind> = [.congested],
        _ play: @escaping @Sendable (Stage, @escaping @Sendable () -> Bool, @escaping @Sendable () -> Void) -> Void
    ) -> Scenario {
        .stall(name, .kinds, on: place, kinds: kinds, [.onCPU], culprit: "handleShortEvent") { stage in
            let end = MonotonicInstant.now.advanced(by: .milliseconds(900))
            let whole = stage.measurement()
            play(stage, { MonotonicInstant.now >= end }) { stage.noteStall(whole.span()) }
            stage.waitForMarks(1)
        }
    }
}

/// What a busy server does hundreds of times in a row: three milliseconds each.
@inline(never)
func handleShortEvent() -> Int {
    let end = MonotonicInstant.now.advanced(by: .milliseconds(3))
    var sum = 1
    while MonotonicInstant.now < end {
        for step in 0..<500 { sum = sum &* 31 &+ step }
    }
    return sum
}

/// Each block brings the next.
@Sendable
private func enqueueNext(
    on loop: EventRunLoop,
    _ isOver: @escaping @Sendable () -> Bool,
    _ done: @escaping @Sendable () -> Void
) {
    keep(handleShortEvent())
    if isOver() { return done() }
    loop.perform { enqueueNext(on: loop, isOver, done) }
}
