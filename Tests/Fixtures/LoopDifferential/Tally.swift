/// Counts the events of all scripts, so that a comparison that covers nothing is noticed.
struct Tally: Sendable {
    enum Event: String, CaseIterable, Sendable {
        case turn
        case sleep
        case source
        case timer
        case observer
        case block
        case mainQueueBlock
        case nestedRun
        case finished
        case stopped
        case timedOut
        case handledSource
        case ranForEver
        case doneByOtherThread
        case doneWhileAsleep
        case nothingToWakeFor
    }

    private var counts = [Int](repeating: 0, count: Event.allCases.count)

    subscript(_ event: Event) -> Int {
        get { counts[Tally.index(event)] }
        set { counts[Tally.index(event)] = newValue }
    }

    static func += (left: inout Tally, right: Tally) {
        for index in left.counts.indices { left.counts[index] += right.counts[index] }
    }

    private static func index(_ event: Event) -> Int { Event.allCases.firstIndex(of: event) ?? 0 }
}
