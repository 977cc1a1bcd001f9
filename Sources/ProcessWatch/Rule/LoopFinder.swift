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
struct LoopFinder: Hashable, Sendable {
    /// What a sighting taught.
    enum Lesson: Hashable, Sendable {
        case nothing
        /// A loop is known now, or another place of its own wait: the C library waits by another instruction once there is a second thread.
        case place(WaitPlace)
    }

    private let isMainThread: Bool
    private let calls: WaitCalls
    private var candidate: WaitPlace?
    private var sightings = 0

    init(isMainThread: Bool, calls: WaitCalls = .native) {
        (self.isMainThread, self.calls) = (isMainThread, calls)
    }

    /// Where the loop waits. Nil as long as none is known.
    var place: WaitPlace? { sightings >= 2 ? candidate : nil }

    /// The descriptor that it waits on. Nil for a loop on a list of them.
    var descriptor: Int32? {
        place.flatMap { calls.onDescriptor.contains($0.call) ? Int32(truncatingIfNeeded: $0.argument) : nil }
    }

    /// The same, while it is not certain.
    var likelyDescriptor: Int32? {
        candidate.flatMap { calls.onDescriptor.contains($0.call) ? Int32(truncatingIfNeeded: $0.argument) : nil }
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
    /// Of several places the outermost is the loop's: a callout may wait in a loop of its own. A thread that talks to a server, call by
    /// call, waits in poll at one place, too: there only the main thread is believed to turn a loop.
    mutating func note(_ sight: ThreadSight) -> Lesson {
        guard let wait = sight.wait, isWait(wait.call) else { return .nothing }
        if let candidate, isSamePlace(wait, candidate) {
            guard sightings < 2 else { return .nothing }
            sightings += 1
            return sightings == 2 ? .place(candidate) : .nothing
        }
        if let place, calls.onDescriptor.contains(wait.call), wait.call == place.call, wait.argument == place.argument {
            candidate = wait
            return .place(wait)
        }
        if sightings < 2 || wait.stackPointer > (candidate?.stackPointer ?? 0) { (candidate, sightings) = (wait, 1) }
        return .nothing
    }

    /// The descriptor belongs to several threads: what it waits for tells nothing of this one.
    mutating func forget() { (candidate, sightings) = (nil, 0) }

    private func isWait(_ call: Int) -> Bool {
        calls.onDescriptor.contains(call) || (isMainThread && calls.onList.contains(call))
    }

    private func isSamePlace(_ one: WaitPlace, _ other: WaitPlace) -> Bool {
        one.call == other.call && one.stackPointer == other.stackPointer && one.programCounter == other.programCounter
            && (calls.onList.contains(one.call) || one.argument == other.argument)
    }
}
