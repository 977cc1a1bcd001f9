extension EventRunLoop {
    /// A name for a set of sources, timers and observers; a run serves those of one mode. Modes compare by name (R7).
    public struct Mode: Hashable, Sendable {
        public let name: String

        public init(_ name: String) { self.name = name }

        /// The mode of ordinary work; common from birth (R5).
        public static let `default` = Mode("default")
        /// Stands for every mode in the loop's common set. Items and blocks can name it; a run cannot (R8).
        public static let common = Mode("common")
    }

    /// What an observer can see a loop do (R14). The values are CFRunLoop's.
    public struct Activity: OptionSet, Hashable, Sendable {
        public let rawValue: UInt32

        @inlinable
        public init(rawValue: UInt32) { self.rawValue = rawValue }

        public static let entry = Activity(rawValue: 1)
        public static let beforeTimers = Activity(rawValue: 2)
        public static let beforeSources = Activity(rawValue: 4)
        public static let beforeWaiting = Activity(rawValue: 32)
        public static let afterWaiting = Activity(rawValue: 64)
        public static let exit = Activity(rawValue: 128)
        public static let all: Activity = [.entry, .beforeTimers, .beforeSources, .beforeWaiting, .afterWaiting, .exit]
    }

    /// Why a run ended (R17). The values are CFRunLoop's.
    public enum RunResult: Int32, Sendable {
        /// The mode was empty, or is now.
        case finished = 1
        case stopped = 2
        case timedOut = 3
        /// A source was handled and the run was to return after one.
        case handledSource = 4
    }
}

extension EventRunLoop.Mode: ExpressibleByStringLiteral, CustomStringConvertible {
    public init(stringLiteral name: String) { self.init(name) }
    public var description: String { name }
}
