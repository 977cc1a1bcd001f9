import RunLoopKit
import StackCapture
import StallDiagnosis

/// Finds the wait of the event loop that a thread runs, if it runs one: the place where the thread was found twice. Pure.
///
/// If there are several places, the outermost one on the stack is the loop's. A wait further in belongs to a callout, so the loop
/// does not rest there. If the thread returns only to the inner wait for five seconds, the outer loop counts as ended, and the
/// inner one as its successor. `CLoopHooks/rule.c` uses the same rule inside a process.
struct LoopFinder: Hashable, Sendable {
    /// What one look has read.
    struct Reading: Hashable, Sendable {
        var position: ThreadPosition
        /// If it differs from that of an earlier reading, the thread ran in between.
        var schedule: Schedule
        var time: MonotonicInstant
    }

    /// A place that may be the loop's, and how often the thread was found there.
    private struct Candidate: Hashable, Sendable {
        var place: WaitPlace
        let first: Reading
        var count = 1

        /// Later it is asked again and again: a loop of GLib has no timer for once, and only then waits as no client does.
        var isAsked: Bool { count & (count - 1) == 0 || count % 16 == 0 }
    }

    private static let nestedFor = Duration.seconds(5)

    private let isMainThread: Bool
    /// Where the loop waits. Nil while no loop is known.
    private(set) var place: WaitPlace?
    private var candidate: Candidate?
    /// The counts with which the thread was last found asleep where no loop waits.
    private var away: Schedule?

    init(isMainThread: Bool) { self.isMainThread = isMainThread }

    /// The descriptor on which the loop waits. Nil for a loop that waits for a list of descriptors.
    var descriptor: Int32? { descriptor(of: place) }

    /// The descriptor on which the loop waits; while no loop is known, the candidate's.
    var likelyDescriptor: Int32? { descriptor(of: likelyPlace) }

    /// The same, if it is an epoll set: the number that a loop gives to io_uring_enter(2) may be an index instead.
    var epollSet: Int32? { likelyPlace.flatMap { WaitCalls.onEpollSet.contains($0.call) ? descriptor(of: $0) : nil } }

    private var likelyPlace: WaitPlace? { place ?? candidate?.place }

    /// In which call the thread waited for a list of descriptors when it was found twice at one place. No loop is known by that: a loop or a
    /// client waits so. It may be at work now.
    var polledBy: Int? {
        guard place == nil, let candidate, candidate.count > 1 else { return nil }
        return WaitCalls.onList.contains(candidate.place.call) ? candidate.place.call : nil
    }

    private func descriptor(of place: WaitPlace?) -> Int32? {
        place.flatMap { WaitCalls.onDescriptor.contains($0.call) ? Int32(truncatingIfNeeded: $0.argument) : nil }
    }

    /// Whether the thread rests in the loop's own wait.
    func isRest(_ position: ThreadPosition) -> Bool {
        guard let place, let wait = position.wait else { return false }
        guard wait.stackPointer == place.stackPointer, wait.programCounter == place.programCounter else { return false }
        if WaitCalls.restarts.contains(wait.call) { return true }
        return wait.call == place.call && (WaitCalls.onList.contains(wait.call) || wait.argument == place.argument)
    }

    /// Whether a look must read the thread's position. A thread that has not run since is still where no loop waits.
    func needsPosition(_ schedule: Schedule) -> Bool { schedule != away }

    /// Evaluates a reading. Call it once for each reading.
    ///
    /// - Parameter isOfLoop: Returns whether a loop would wait for such a list of descriptors. A client that sends its server one
    ///   request after another also waits at one place, so lists are considered only on the main thread. The answer costs system
    ///   calls, so it is requested only at the second, fourth and eighth time, and at each sixteenth.
    /// - Returns: Where the loop waits, if that is new: a newly found loop, or another place of a known loop's wait. (The C library
    ///   waits at another instruction once the process has a second thread.)
    mutating func note(_ reading: Reading, isOfLoop: (WaitPlace) -> Bool) -> WaitPlace? {
        guard let wait = reading.position.wait, isWait(wait.call) else {
            // The counts of a running thread may be those from before it ran.
            away = reading.position == .running ? nil : reading.schedule
            return nil
        }
        away = nil
        if let place {
            if isSamePlace(wait, place) {
                hasTurned()
                return nil
            }
            // The same place with another descriptor: the loop has made a new epoll set.
            if isOnSameDescriptor(wait, place) || isSameCode(wait, place) {
                hasTurned()
                self.place = wait
                return wait
            }
        }
        guard var candidate, isCandidate(wait, candidate.place) else {
            candidate = Candidate(place: wait, first: reading)
            return nil
        }
        candidate.place = wait
        candidate.count += 1
        self.candidate = candidate
        guard replaces(candidate, reading) else { return nil }
        if WaitCalls.onList.contains(wait.call) {
            guard candidate.isAsked, isOfLoop(wait) else { return nil }
        }
        (place, self.candidate) = (wait, nil)
        return wait
    }

    /// The loop has returned to its own wait, so waits further in belong to its callouts.
    mutating func hasTurned() {
        if let place, let inner = candidate?.place, inner.stackPointer <= place.stackPointer { candidate = nil }
    }

    /// Forgets the loop: several threads wait for the descriptor, so this thread's waits for it say nothing about a loop.
    mutating func forget() { (place, candidate) = (nil, nil) }

    /// Whether the loop's place changes to one at which the thread was found before.
    private func replaces(_ candidate: Candidate, _ reading: Reading) -> Bool {
        guard let place, candidate.place.stackPointer <= place.stackPointer else { return true }
        // A thread that has not run in between has not returned: it is still in its first wait there.
        return reading.time - candidate.first.time >= Self.nestedFor && reading.schedule != candidate.first.schedule
    }

    private func isWait(_ call: Int) -> Bool {
        WaitCalls.onDescriptor.contains(call) || (isMainThread && WaitCalls.onList.contains(call))
    }

    /// Once a loop is known, all waits for one descriptor are one candidate, whichever function makes them.
    private func isCandidate(_ one: WaitPlace, _ other: WaitPlace) -> Bool {
        isSamePlace(one, other) || (place != nil && isOnSameDescriptor(one, other))
    }

    private func isOnSameDescriptor(_ one: WaitPlace, _ other: WaitPlace) -> Bool {
        WaitCalls.onDescriptor.contains(one.call) && one.call == other.call && one.argument == other.argument
    }

    private func isSamePlace(_ one: WaitPlace, _ other: WaitPlace) -> Bool {
        isSameCode(one, other) && (WaitCalls.onList.contains(one.call) || one.argument == other.argument)
    }

    private func isSameCode(_ one: WaitPlace, _ other: WaitPlace) -> Bool {
        one.call == other.call && one.stackPointer == other.stackPointer && one.programCounter == other.programCounter
    }
}
