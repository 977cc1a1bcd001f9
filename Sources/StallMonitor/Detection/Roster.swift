import RunLoopKit

/// All watched loops, and those of them that are to be looked at: who is awake. Nothing here takes longer because more loops are
/// asleep. Confined to the watchdog's thread.
struct Roster {
    private(set) var subjects: [Subject] = []
    /// Places of those to look at, as their bells have them.
    private var awake: [Int] = []
    private var indexOfPlace: [Int: Int] = [:]
    private var placeOfNumber: [Int: Int] = [:]
    /// How many loops have which tick, and which threshold.
    private var ticks = Tally()
    private var thresholds = Tally()

    var isEmpty: Bool { subjects.isEmpty }
    var isAtRest: Bool { awake.isEmpty }
    /// The finest tick asked for.
    var tick: Duration { ticks.least ?? StallRule().tick }
    /// The lowest threshold.
    var threshold: Duration { thresholds.least ?? StallRule().threshold }

    subscript(index: Int) -> Subject {
        _read { yield subjects[index] }
        _modify { yield &subjects[index] }
    }

    /// The indices of those to look at.
    var awakeIndices: [Int] { awake.compactMap { indexOfPlace[$0] } }

    func index(ofNumber number: Int) -> Int? { placeOfNumber[number].flatMap { indexOfPlace[$0] } }

    func index(ofPlace place: Int) -> Int? { indexOfPlace[place] }

    func subject(at place: Int) -> Subject? { indexOfPlace[place].map { subjects[$0] } }

    /// A new one is awake.
    mutating func add(_ subject: Subject) {
        let place = subject.bell.place
        indexOfPlace[place] = subjects.count
        placeOfNumber[subject.identity.number] = place
        ticks.add(subject.policy.rule.tick)
        thresholds.add(subject.policy.rule.threshold)
        subjects.append(subject)
        wake(place, restedUntil: nil)
    }

    /// The last one takes the removed one's index.
    mutating func remove(at index: Int) -> Subject {
        subjects.swapAt(index, subjects.count - 1)
        let subject = subjects.removeLast()
        let place = subject.bell.place
        if subjects.indices.contains(index) { indexOfPlace[subjects[index].bell.place] = index }
        indexOfPlace[place] = nil
        placeOfNumber[subject.identity.number] = nil
        if subject.isAwake { awake.removeAll { $0 == place } }
        ticks.remove(subject.policy.rule.tick)
        thresholds.remove(subject.policy.rule.threshold)
        return subject
    }

    /// The loop has left its rest.
    ///
    /// - Parameters:
    ///   - time: Until when it rested at least.
    ///   - missed: What the watchdog has missed so far, all in all: none of it is of the time that now begins.
    mutating func wake(_ place: Int, restedUntil time: MonotonicInstant?, missed: Duration? = nil) {
        guard let index = indexOfPlace[place], !subjects[index].isAwake else { return }
        subjects[index].isAwake = true
        if let missed { subjects[index].discounts.ignoreMissed(before: missed) }
        if let time { subjects[index].unparked(at: time) }
        awake.append(place)
    }

    /// Lets those sleep that rest and will ring, and those at which nobody is to look.
    mutating func letSleep(_ isPaused: (Subject) -> Bool) {
        awake.removeAll { place in
            guard let index = indexOfPlace[place],
                isPaused(subjects[index])
                    || (subjects[index].isAtRest && subjects[index].loop.heartbeat.requestWakeSignal())
            else { return false }
            subjects[index].isAwake = false
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
