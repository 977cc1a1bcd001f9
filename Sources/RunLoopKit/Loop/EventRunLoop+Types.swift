import Synchronization

extension EventRunLoop {
    /// A name for a set of sources, timers and observers; a run serves those of one mode. Modes compare by name (R7).
    public struct Mode: Hashable, Sendable {
        /// Any text. Modes differ by name only (R7).
        public let name: String

        /// Creates the name only: a loop creates the mode when it first needs one of that name (R4).
        public init(_ name: String) { self.name = name }

        /// The mode of ordinary work; common from the start (R5).
        public static var `default`: Mode { Mode("default") }
        /// Represents every mode in the loop's common set. Items and blocks can name it; a run cannot (R8).
        public static var common: Mode { Mode("common") }
    }

    /// What an observer can see a loop do (R14). The values are CFRunLoop's.
    public struct Activity: OptionSet, Hashable, Sendable {
        /// CFRunLoop's bits, so that traces and reports can be compared.
        public let rawValue: UInt32

        /// Bits that name no activity are kept but never observed.
        @inlinable
        public init(rawValue: UInt32) { self.rawValue = rawValue }

        /// A run begins. Not observed for an empty mode (R11).
        public static let entry = Activity(rawValue: 1)
        /// A turn begins; none of its work has run yet (R14 a).
        public static let beforeTimers = Activity(rawValue: 2)
        /// Comes right after `beforeTimers`, and before blocks and signalled sources run (R14 b).
        public static let beforeSources = Activity(rawValue: 4)
        /// The loop is about to sleep. Omitted in a turn that only polls (R15).
        public static let beforeWaiting = Activity(rawValue: 32)
        /// The sleep has ended, and its cause has not been handled yet. Omitted in a turn that only polls (R15).
        public static let afterWaiting = Activity(rawValue: 64)
        /// A run ends; also observed for a run that was stopped before its first turn (R13).
        public static let exit = Activity(rawValue: 128)
        /// All six. None is observed while the loop sleeps.
        public static let all: Activity = [.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting, .exit]

        static let aroundWaiting: Activity = [.beforeWaiting, .afterWaiting]
    }

    /// Why a run ended (R17). The values are CFRunLoop's.
    public enum RunResult: Int32, Sendable {
        /// The mode was or became empty.
        case finished = 1
        /// `stop()` or `stop(mode:)` was called.
        case stopped = 2
        /// The run's timeout passed.
        case timedOut = 3
        /// A source was handled and the run was to return after one.
        case handledSource = 4
    }
}

extension EventRunLoop.Mode: ExpressibleByStringLiteral, CustomStringConvertible {
    /// Allows a mode to be written as a string literal.
    public init(stringLiteral name: String) { self.init(name) }
    /// The plain name.
    public var description: String { name }
}

extension LoopPhase {
    /// The activity that observers of this phase see; nil for ``idle`` and ``waiting``, in which no observer runs.
    public var activity: EventRunLoop.Activity? {
        switch self {
        case .idle, .waiting: nil
        case .entry: .entry
        case .beforeTimers: .beforeTimers
        case .beforeSources: .beforeSources
        case .beforeWaiting: .beforeWaiting
        case .afterWaiting: .afterWaiting
        case .exit: .exit
        }
    }
}

/// A condition that ends a run besides its timeout. It is set once, from any thread; a caller on another thread than the loop's
/// wakes the loop afterwards. The run notices before it sleeps and at the end of the turn, even if it was set during a nested
/// run.
package final class RunCompletion: Sendable {
    private let flag = Atomic<Bool>(false)
    /// What the thread waits for while the run sleeps, for readers of its stack.
    let awaited: PortWait?

    /// Not set. A run with it reports `wait` in its thread's memory while it sleeps.
    package init(awaiting wait: PortWait? = nil) { awaited = wait }

    /// Acquiring: if it is true, what was written before ``set()`` is visible.
    package var isSet: Bool { flag.load(ordering: .acquiring) }

    /// Ends the run. A caller on another thread than the loop's wakes the loop afterwards.
    package func set() { flag.store(true, ordering: .releasing) }

    // What has stopped runs with this condition. The loop's thread; relaxed.
    private let loopWasStopped = Atomic<Bool>(false)
    private let modeWasStopped = Atomic<Bool>(false)

    func noteStops(ofLoop loop: Bool, ofMode mode: Bool) {
        if loop { loopWasStopped.store(true, ordering: .relaxed) }
        if mode { modeWasStopped.store(true, ordering: .relaxed) }
    }

    /// Repeats the stops that have ended runs with this condition, so that the outer runs see them: for a caller that did not return then, but has
    /// run the mode again. The loop's thread.
    package func passOnStops(to loop: EventRunLoop, _ mode: EventRunLoop.Mode) {
        if loopWasStopped.load(ordering: .relaxed) { loop.stop() }
        if modeWasStopped.load(ordering: .relaxed) { loop.stop(mode: mode) }
    }
}

extension PortPlace {
    /// Records where the port is now. A port on several loops has no thread: any of them may serve it.
    package func note(_ presences: [(loop: EventRunLoop, mode: EventRunLoop.Mode)]) {
        let first = presences.first?.loop
        guard presences.allSatisfy({ $0.loop === first }) else { return note(thread: 0, modes: []) }
        note(thread: first?.thread?.id ?? 0, modes: presences.map { $0.loop.index(of: $0.mode) })
    }
}
