import RunLoopKit
import StackCapture

/// The system calls that event loops wait in, by their numbers on this architecture.
struct WaitCalls: Hashable, Sendable {
    /// On one descriptor, their first argument.
    let onDescriptor: Set<Int>
    /// On a list of descriptors.
    let onList: Set<Int>
    private let restarts: Set<Int>

    /// This kernel's.
    static let native = WaitCalls()

    private init() {
        func numbers(_ names: Set<String>) -> Set<Int> {
            Set((0..<600).filter { SystemCall(number: $0, arguments: []).name.map(names.contains) == true })
        }
        onDescriptor = numbers(["epoll_wait", "epoll_pwait", "epoll_pwait2", "io_uring_enter"])
        onList = numbers(["poll", "ppoll", "select", "pselect6"])
        restarts = numbers(["restart_syscall"])
    }

    /// What a wait with a time is called once it goes on after a stop.
    func isRestart(_ call: Int) -> Bool { restarts.contains(call) }
}

/// Finds out where one thread's event loop waits, if it turns one: the place at which it was found twice. Pure.
///
/// Of several places the outermost is the loop's: a wait further in is a callout's, and no rest. Only if the thread is found to come back to
/// that for five seconds, and never to its loop in between, the loop is over, and the inner one is the next. `CLoopHooks/rule.c` decides the
/// same within the process.
struct LoopFinder: Hashable, Sendable {
    /// What was read at one look.
    struct Sighting: Hashable, Sendable {
        var sight: ThreadSight
        /// Tells whether the thread has run since an earlier one.
        var schedule: Schedule
        var time: MonotonicInstant
    }

    /// What a sighting taught.
    enum Lesson: Hashable, Sendable {
        case nothing
        /// A loop is known now, or another place of its own wait: the C library waits by another instruction once there is a second thread.
        case place(WaitPlace)
    }

    /// A place that may be the loop's, as often as it was found.
    private struct Candidate: Hashable, Sendable {
        var place: WaitPlace
        let first: Sighting
        var count = 1
    }

    private static let nestedFor = Duration.seconds(5)

    private let isMainThread: Bool
    private let calls: WaitCalls
    /// Where the loop waits. Nil as long as none is known.
    private(set) var place: WaitPlace?
    private var candidate: Candidate?

    init(isMainThread: Bool, calls: WaitCalls = .native) {
        (self.isMainThread, self.calls) = (isMainThread, calls)
    }

    /// The descriptor that it waits on. Nil for a loop on a list of them.
    var descriptor: Int32? { descriptor(of: place) }

    /// The same, while it is not certain.
    var likelyDescriptor: Int32? { descriptor(of: place ?? candidate?.place) }

    private func descriptor(of place: WaitPlace?) -> Int32? {
        place.flatMap { calls.onDescriptor.contains($0.call) ? Int32(truncatingIfNeeded: $0.argument) : nil }
    }

    /// Whether the thread rests in the loop's own wait.
    func isRest(_ sight: ThreadSight) -> Bool {
        guard let place, let wait = sight.wait else { return false }
        guard wait.stackPointer == place.stackPointer, wait.programCounter == place.programCounter else { return false }
        if calls.isRestart(wait.call) { return true }
        return wait.call == place.call && (calls.onList.contains(wait.call) || wait.argument == place.argument)
    }

    /// Takes what the thread was found at, once for each time that it was.
    ///
    /// - Parameter isOfLoop: of a wait for a list, whether a loop would wait for that. A thread that talks to a server, call by call, waits so
    ///   at one place, too: only the main thread is asked. Costs system calls, and so is asked at the second, fourth, eighth … time.
    mutating func note(_ sighting: Sighting, isOfLoop: (WaitPlace) -> Bool) -> Lesson {
        guard let wait = sighting.sight.wait, isWait(wait.call) else { return .nothing }
        if let place {
            if isSamePlace(wait, place) {
                hasTurned()
                return .nothing
            }
            // The same place on another descriptor is a loop that has made itself a new set.
            if isOnSameDescriptor(wait, place) || isSameCode(wait, place) {
                hasTurned()
                self.place = wait
                return .place(wait)
            }
        }
        guard var candidate, isCandidate(wait, candidate.place) else {
            candidate = Candidate(place: wait, first: sighting)
            return .nothing
        }
        candidate.place = wait
        candidate.count += 1
        self.candidate = candidate
        guard replaces(candidate, sighting) else { return .nothing }
        if calls.onList.contains(wait.call) {
            guard candidate.count & (candidate.count - 1) == 0, isOfLoop(wait) else { return .nothing }
        }
        (place, self.candidate) = (wait, nil)
        return .place(wait)
    }

    /// The loop has come by its own wait: what waits further in is within one of its turns after the other.
    mutating func hasTurned() {
        if let place, let inner = candidate?.place, inner.stackPointer <= place.stackPointer { candidate = nil }
    }

    /// The descriptor belongs to several threads: what it waits for tells nothing of this one.
    mutating func forget() { (place, candidate) = (nil, nil) }

    /// Whether a place, in which the thread was found before, is the loop's from now on.
    private func replaces(_ candidate: Candidate, _ sighting: Sighting) -> Bool {
        guard let place, candidate.place.stackPointer <= place.stackPointer else { return true }
        // One that has not run in between has not come back: it still waits there, once.
        return sighting.time - candidate.first.time >= Self.nestedFor && sighting.schedule != candidate.first.schedule
    }

    private func isWait(_ call: Int) -> Bool {
        calls.onDescriptor.contains(call) || (isMainThread && calls.onList.contains(call))
    }

    /// Of a thread with a loop one descriptor is one wait, wherever in a callout.
    private func isCandidate(_ one: WaitPlace, _ other: WaitPlace) -> Bool {
        isSamePlace(one, other) || (place != nil && isOnSameDescriptor(one, other))
    }

    private func isOnSameDescriptor(_ one: WaitPlace, _ other: WaitPlace) -> Bool {
        calls.onDescriptor.contains(one.call) && one.call == other.call && one.argument == other.argument
    }

    private func isSamePlace(_ one: WaitPlace, _ other: WaitPlace) -> Bool {
        isSameCode(one, other) && (calls.onList.contains(one.call) || one.argument == other.argument)
    }

    private func isSameCode(_ one: WaitPlace, _ other: WaitPlace) -> Bool {
        one.call == other.call && one.stackPointer == other.stackPointer && one.programCounter == other.programCounter
    }
}
