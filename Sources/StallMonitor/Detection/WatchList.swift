import RunLoopKit
import StallDetection

/// All watched loops, and those of them that are to be looked at: who is awake. Nothing here takes longer because more loops are
/// asleep. Confined to the watchdog's thread.
struct WatchList {
    private(set) var loops: [WatchedLoop] = []
    /// Places of those to look at, as their wake flags have them.
    private var awake: [Int] = []
    private var indexOfPlace: [Int: Int] = [:]
    private var placeOfNumber: [Int: Int] = [:]
    /// How many loops have which tick, and which threshold.
    private var ticks = Tally()
    private var thresholds = Tally()

    var isEmpty: Bool { loops.isEmpty }
    var isAtRest: Bool { awake.isEmpty }
    /// The finest tick asked for.
    var tick: Duration { ticks.least ?? StallRule().tick }
    /// The lowest threshold.
    var threshold: Duration { thresholds.least ?? StallRule().threshold }

    subscript(index: Int) -> WatchedLoop {
        _read { yield loops[index] }
        _modify { yield &loops[index] }
    }

    /// The indices of those to look at.
    var awakeIndices: [Int] { awake.compactMap { indexOfPlace[$0] } }

    func index(ofNumber number: Int) -> Int? { placeOfNumber[number].flatMap { indexOfPlace[$0] } }

    func index(ofPlace place: Int) -> Int? { indexOfPlace[place] }

    func watched(at place: Int) -> WatchedLoop? { indexOfPlace[place].map { loops[$0] } }

    /// A new one is awake.
    mutating func add(_ watched: WatchedLoop) {
        let place = watched.wakeFlag.place
        indexOfPlace[place] = loops.count
        placeOfNumber[watched.identity.number] = place
        ticks.add(watched.policy.rule.tick)
        thresholds.add(watched.policy.rule.threshold)
        loops.append(watched)
        wake(place, restedUntil: nil)
    }

    /// The last one takes the removed one's index.
    mutating func remove(at index: Int) -> WatchedLoop {
        loops.swapAt(index, loops.count - 1)
        let watched = loops.removeLast()
        let place = watched.wakeFlag.place
        if loops.indices.contains(index) { indexOfPlace[loops[index].wakeFlag.place] = index }
        indexOfPlace[place] = nil
        placeOfNumber[watched.identity.number] = nil
        if watched.isAwake { awake.removeAll { $0 == place } }
        ticks.remove(watched.policy.rule.tick)
        thresholds.remove(watched.policy.rule.threshold)
        return watched
    }

    /// The loop has left its rest.
    ///
    /// - Parameters:
    ///   - time: Until when it rested at least.
    ///   - missed: What the watchdog has missed so far, all in all: none of it is of the time that now begins.
    mutating func wake(_ place: Int, restedUntil time: MonotonicInstant?, missed: Duration? = nil) {
        guard let index = indexOfPlace[place], !loops[index].isAwake else { return }
        loops[index].isAwake = true
        if let missed { loops[index].excludedTime.ignoreMissed(before: missed) }
        if let time { loops[index].unparked(at: time) }
        awake.append(place)
    }

    /// Lets those sleep that rest and will raise their flag, and those at which nobody is to look.
    mutating func letSleep(_ isPaused: (WatchedLoop) -> Bool) {
        awake.removeAll { place in
            guard let index = indexOfPlace[place],
                isPaused(loops[index])
                    || (loops[index].isAtRest && loops[index].loop.heartbeat.requestWakeSignal())
            else { return false }
            loops[index].isAwake = false
            return true
        }
    }
}

/// Lengths, each with how often it is there. Of many loops' few are different.
private struct Tally {
    private var counts: [Duration: Int] = [:]
    var least: Duration? { counts.keys.min() }

    mutating func add(_ length: Duration) { counts[length, default: 0] += 1 }

    mutating func remove(_ length: Duration) {
        counts[length] = counts[length].flatMap { $0 > 1 ? $0 - 1 : nil }
    }
}
