import CPeers
import Dispatch
import Foundation
import RunLoopKit
import Synchronization

/// The cost of being watched, for a loop: by RunLoopKit's heartbeat, and by the monitor of the textbooks.
enum Monitor {
    // MARK: - Transitions

    /// Only the transitions of a heartbeat, two per turn, as in a turn that only polls.
    static func transitions(_ count: Int, watched: Bool) -> Outcome {
        let heartbeat = LoopHeartbeat()
        if watched { attach(to: heartbeat) }
        return .timing {
            for turn in 0..<count / 2 {
                heartbeat.publish(.beforeTimers, modeIndex: 0, turn: UInt64(turn))
                heartbeat.publish(.beforeSources, modeIndex: 0, turn: UInt64(turn))
            }
            return Int(heartbeat.pulse.turn + 1) * 2
        }
    }

    /// All transitions of a turn in which the loop sleeps, including a departure from rest.
    static func sleepingTurns(_ count: Int) -> Outcome {
        let phases: [LoopPhase] = [.beforeTimers, .beforeSources, .beforeWaiting, .waiting, .afterWaiting]
        let heartbeat = LoopHeartbeat()
        attach(to: heartbeat)
        return .timing {
            for turn in 0..<count {
                for phase in phases { heartbeat.publish(phase, modeIndex: 0, turn: UInt64(turn)) }
            }
            return Int(heartbeat.pulse.turn + 1)
        }
    }

    /// All transitions of a turn that only polls.
    static func pollingTurns(_ count: Int) -> Outcome {
        let outcome = transitions(2 * count, watched: true)
        return Outcome(time: outcome.time, done: outcome.done / 2)
    }

    private static func attach(to heartbeat: LoopHeartbeat) {
        precondition(heartbeat.attach(Watcher()), "the heartbeat has a watcher already")
    }

    private final class Watcher: LoopWatcher {
        func loopDidLeaveRest() {}
    }

    // MARK: - Turns

    static func turnsWatched(_ count: Int) -> Outcome {
        let heartbeat = EventRunLoop.current.heartbeat
        attach(to: heartbeat)
        defer { heartbeat.detach() }
        return Ours.turns(count)
    }

    static func turnsObserved(_ count: Int) -> Outcome {
        let observer = LoopObserver { _, _ in }
        EventRunLoop.current.add(observer)
        defer { observer.invalidate() }
        return Ours.turns(count)
    }

    static func roundTripsWatched(_ count: Int) -> Outcome {
        let heartbeat = EventRunLoop.current.heartbeat
        attach(to: heartbeat)
        defer { heartbeat.detach() }
        return Ours.roundTripsBySource(count)
    }

    static func turnsByTheBook(_ count: Int) -> Outcome { byTheBook { Ours.turns(count) } }

    static func roundTripsByTheBook(_ count: Int) -> Outcome { byTheBook { Ours.roundTripsBySource(count) } }

    private static func byTheBook(_ body: () -> Outcome) -> Outcome {
        let book = Textbook()
        let observer = LoopObserver { _, activity in book.note(activity.rawValue) }
        EventRunLoop.current.add(observer)
        defer {
            observer.invalidate()
            book.end()
        }
        return body()
    }

    static func foundationTurnsByTheBook(_ count: Int) -> Outcome {
        let book = Textbook()
        let context = unsafe Unmanaged.passUnretained(book)
        let observer = unsafe cf_observe(
            { unsafe Unmanaged<Textbook>.fromOpaque($0!).takeUnretainedValue().note(1) },
            context.toOpaque()
        )
        defer {
            unsafe cf_end_observing(observer)
            book.end()
        }
        return Outcome(cf_turns(UInt64(count)))
    }
}

/// The monitor found in many textbooks: an observer records each activity and signals a semaphore, for which a thread waits with
/// a timeout. Each transition is a signal, and each signal may be a system call and a wake-up.
private final class Textbook: Sendable {
    private let activity = Atomic<UInt32>(0)
    private let isOver = Atomic<Bool>(false)
    private let transition = DispatchSemaphore(value: 0)
    private let ended = DispatchSemaphore(value: 0)
    private let stalls = Atomic<Int>(0)

    init() {
        let thread = Thread { self.watch() }
        thread.start()
    }

    func note(_ activity: UInt32) {
        self.activity.store(activity, ordering: .relaxed)
        transition.signal()
    }

    func end() {
        isOver.store(true, ordering: .relaxed)
        transition.signal()
        ended.wait()
    }

    private func watch() {
        while !isOver.load(ordering: .relaxed) {
            guard transition.wait(timeout: .now() + .milliseconds(50)) == .timedOut else { continue }
            if activity.load(ordering: .relaxed) != 0 { stalls.add(1, ordering: .relaxed) }
        }
        ended.signal()
    }
}
