/// An operation of a script on a loop. It depends only on its own data and
/// on the events so far, so that it has the same meaning for both engines.
indirect enum Operation: Sendable {
    case add(Item, Place)
    case remove(Item, Place)
    case invalidate(Item)
    case signal(Int)
    case move(timer: Int, When)
    case enqueue(block: Int, [Place])
    case addCommonMode(Place)
    case stop
    case wake
    case run(Place, Span, returnAfterSource: Bool)
    case runForEver
    /// Lets quarters of a millisecond pass, like a busy callout.
    case spend(quarters: Int)
    /// Another thread executes the operations, while this one waits for it.
    case onOtherThread([Operation])
    /// Another thread executes the operations the next time that the loop would sleep with nothing ready.
    case whenAsleep([Operation])
    case ask(Question)
    /// Enqueues a block on the main dispatch queue; on a main loop only.
    case dispatch(block: Int)
}

enum Item: Hashable, Sendable {
    case source(Int)
    case timer(Int)
    case observer(Int)
}

/// A mode, or the common modes.
enum Place: Hashable, Sendable {
    case mode(Int)
    case common

    static let modeCount = 4
}

/// The date of a timer.
enum When: Sendable {
    /// Due when the operation is over.
    case now
    /// After this number of milliseconds. Each timer has its own microseconds,
    /// so that two timers are never due at the same instant (see R41).
    case soon(Int)
    /// After the end of every script.
    case never
}

/// The duration of a run.
enum Span: Sendable {
    case poll
    case milliseconds(Int)
    case forEver
}

enum Question: Sendable {
    case contains(Item, Place)
    case isValid(Item)
    case isSignalled(Int)
    case fireDate(timer: Int)
    case earliestFireDate(Place)
    case currentMode
    case isWaiting
}

/// A loop's items, the operations of each of their callouts, and the operations of the thread outside of callouts.
struct Script: Sendable {
    struct Source: Sendable { var order: Int }
    struct Timer: Sendable {
        var order: Int
        var first: When
        /// Milliseconds; 0 for a one-shot.
        var interval: Int
    }
    struct Observer: Sendable {
        var order: Int
        var activities: UInt32
        var repeats: Bool
    }

    var sources: [Source] = []
    var timers: [Timer] = []
    var observers: [Observer] = []
    /// By item, then by the number of the callout, starting at 0.
    var acts: [Item: [Int: [Operation]]] = [:]
    var blocks: [[Operation]] = []
    var thread: [Operation] = []
    /// The activities that an observer of the script's player records in the trace, in addition to entry, beforeTimers and exit.
    var recorded: UInt32 = 0xE7

    var items: [Item] {
        sources.indices.map { .source($0) } + timers.indices.map { .timer($0) }
            + observers.indices.map { .observer($0) }
    }
}

// MARK: - For people

extension Operation: CustomStringConvertible {
    var description: String {
        switch self {
        case .add(let item, let place): "add \(item) to \(place)"
        case .remove(let item, let place): "remove \(item) from \(place)"
        case .invalidate(let item): "invalidate \(item)"
        case .signal(let source): "signal source \(source)"
        case .move(let timer, let when): "move timer \(timer) to \(when)"
        case .enqueue(let block, let places): "enqueue block \(block) for \(places)"
        case .addCommonMode(let place): "make \(place) common"
        case .stop: "stop"
        case .wake: "wake"
        case .run(let place, let span, let returns): "run \(place), \(span)\(returns ? ", return after source" : "")"
        case .runForEver: "run for ever"
        case .spend(let quarters): "spend \(quarters) quarters"
        case .onOtherThread(let operations): "on other thread \(operations)"
        case .whenAsleep(let operations): "when asleep \(operations)"
        case .ask(let question): "ask \(question)"
        case .dispatch(let block): "dispatch block \(block)"
        }
    }
}

extension Item: CustomStringConvertible {
    var description: String {
        switch self {
        case .source(let index): "source \(index)"
        case .timer(let index): "timer \(index)"
        case .observer(let index): "observer \(index)"
        }
    }
}

extension Place: CustomStringConvertible {
    var description: String {
        switch self {
        case .mode(let index): "mode \(index)"
        case .common: "common"
        }
    }
}

extension Script: CustomStringConvertible {
    var description: String {
        var lines = [recorded == 0xE7 ? "recorder: all" : "recorder: \(String(recorded, radix: 16))"]
        for (index, source) in sources.enumerated() { lines.append("source \(index): order \(source.order)") }
        for (index, timer) in timers.enumerated() {
            lines.append("timer \(index): order \(timer.order), first \(timer.first), every \(timer.interval) ms")
        }
        for (index, observer) in observers.enumerated() {
            let activities = String(observer.activities, radix: 16)
            lines.append("observer \(index): order \(observer.order), \(activities)\(observer.repeats ? "" : ", once")")
        }
        for item in items {
            for (call, operations) in (acts[item] ?? [:]).sorted(by: { $0.key < $1.key }) where !operations.isEmpty {
                lines.append("  call \(call) of \(item): \(operations)")
            }
        }
        for (index, block) in blocks.enumerated() where !block.isEmpty { lines.append("block \(index): \(block)") }
        return (lines + ["thread:"] + thread.map { "  \($0)" }).joined(separator: "\n")
    }
}
