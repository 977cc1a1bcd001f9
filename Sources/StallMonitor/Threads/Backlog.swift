/// A message to one reader that may be far behind.
protocol QueuedMessage: Sendable {
    /// What it is to the others in the queue.
    var role: QueueRole { get }
    /// What it is counted as when it is dropped.
    var kind: String { get }
    /// About how much memory it holds.
    var bytes: Int { get }
    /// The same with its weight left out. Nil when there is nothing to leave out.
    var lightened: Self? { get }
}

/// What a message is to the others about the same thing, which goes by its number.
enum QueueRole: Hashable, Sendable {
    case opens(Int)
    /// The latest of its kind is enough: it takes the place of one that still waits.
    case updates(Int, UpdateKind = .length)
    case adds(Int)
    case closes(Int)
    /// About nothing in particular. `latestIsEnough`: it takes the place of one that still waits.
    case alone(latestIsEnough: Bool)

    enum UpdateKind: Hashable, Sendable { case length, counts }
}

/// The messages that wait for a reader, bounded in number and bytes. Pure.
///
/// Over the bounds goes first what may be dropped, the oldest of it; then whole things, opened and closed, that the reader has not
/// heard of; then the weight of what is still open. What is left over the bounds are openings alone: of each watched thing, one.
/// The reader never hears of an end without its beginning, nor the other way round.
///
/// The watchdog adds while it holds up everything else, so no step goes through what waits: each takes the same short time, however
/// many loops are watched.
struct Backlog<Message: QueuedMessage>: Sendable {
    private struct Entry: Sendable {
        var message: Message
        var role: QueueRole
        var bytes: Int
    }

    /// By their places in the order.
    private var entries: [Int: Entry] = [:]
    private var nextPlace = 0
    /// Of what is replaced by its latest.
    private var latest: [QueueRole: Int] = [:]
    /// All places of a thing, of those whose opening still waits.
    private var opened: [Int: [Int]] = [:]
    /// Where to look first for what could go. Some may be gone already.
    private var droppable = Line()
    private var heavy = Line()
    private var alone = Line()
    /// Things, not places: opened and closed.
    private var whole = Line()
    private let capacity: Int
    private let maxBytes: Int
    private(set) var bytes = 0
    private(set) var peakBytes = 0
    /// By their kinds. `stall_stacks` are those whose message stayed without them.
    private(set) var dropped: [String: Int] = [:]

    init(capacity: Int, maxBytes: Int) {
        (self.capacity, self.maxBytes) = (capacity, maxBytes)
    }

    var isEmpty: Bool { entries.isEmpty }

    mutating func add(_ message: Message, mayBeDropped: Bool) {
        let entry = Entry(message: message, role: message.role, bytes: message.bytes)
        bytes += entry.bytes
        if let place = latest[entry.role], let earlier = entries[place] {
            bytes -= earlier.bytes
            entries[place] = entry
        } else {
            append(entry, mayBeDropped: mayBeDropped)
        }
        while entries.count > capacity || bytes > maxBytes, shed() {}
        peakBytes = max(peakBytes, bytes)
    }

    /// All of it, in order.
    mutating func takeAll() -> [Message] {
        let messages = entries.sorted { $0.key < $1.key }.map(\.value.message)
        (entries, latest, opened, bytes) = ([:], [:], [:], 0)
        (droppable, heavy, alone, whole) = (Line(), Line(), Line(), Line())
        return messages
    }

    private mutating func append(_ entry: Entry, mayBeDropped: Bool) {
        let place = nextPlace
        nextPlace += 1
        entries[place] = entry
        if entry.role.latestIsEnough { latest[entry.role] = place }
        if mayBeDropped { droppable.add(place) }
        if entry.message.lightened != nil { heavy.add(place) }
        switch entry.role {
        case .opens(let number): opened[number] = [place]
        case .closes(let number):
            opened[number]?.append(place)
            if opened[number] != nil { whole.add(number) }
        case .updates(let number, _), .adds(let number): opened[number]?.append(place)
        case .alone: if !mayBeDropped { alone.add(place) }
        }
        // Stalls that were dropped as a whole leave their places behind.
        heavy.compact(to: entries.count) { [entries] in entries[$0] != nil }
    }

    /// Makes room. False when there is nothing that could go.
    private mutating func shed() -> Bool {
        if let place = droppable.next(where: { [entries] in entries[$0] != nil }) {
            count(entries[place]?.message.kind)
            remove(at: place)
            return true
        }
        if let number = whole.next(where: { [opened] in opened[$0] != nil }) {
            count("stalls")
            for place in opened[number] ?? [] { remove(at: place) }
            opened[number] = nil
            return true
        }
        return lighten() || dropAlone()
    }

    private mutating func lighten() -> Bool {
        guard bytes > maxBytes, let place = heavy.next(where: { [entries] in entries[$0] != nil }),
            let entry = entries[place], let light = entry.message.lightened
        else { return false }
        count("stall_stacks")
        bytes += light.bytes - entry.bytes
        entries[place] = Entry(message: light, role: entry.role, bytes: light.bytes)
        return true
    }

    private mutating func dropAlone() -> Bool {
        guard let place = alone.next(where: { [entries] in entries[$0] != nil }) else { return false }
        guard place != nextPlace - 1 else {
            // The newest stays until there is a newer one.
            alone.add(place)
            return false
        }
        count(entries[place]?.message.kind)
        remove(at: place)
        return true
    }

    private mutating func remove(at place: Int) {
        guard let entry = entries.removeValue(forKey: place) else { return }
        bytes -= entry.bytes
        if latest[entry.role] == place { latest[entry.role] = nil }
    }

    private mutating func count(_ kind: String?) {
        dropped[kind ?? "other", default: 0] += 1
    }
}

/// Numbers in the order they came.
private struct Line: Sendable {
    private var numbers: [Int] = []
    private var head = 0

    mutating func add(_ number: Int) {
        numbers.append(number)
    }

    /// Takes the first that is still good; those before it are gone for good.
    mutating func next(where isGood: (Int) -> Bool) -> Int? {
        while head < numbers.count {
            let number = numbers[head]
            head += 1
            if head > 64, head * 2 > numbers.count {
                numbers.removeFirst(head)
                head = 0
            }
            if isGood(number) { return number }
        }
        (numbers, head) = ([], 0)
        return nil
    }

    /// Forgets what is no longer good, once that is most of it.
    mutating func compact(to size: Int, where isGood: (Int) -> Bool) {
        guard numbers.count > 2 * size + 64 else { return }
        (numbers, head) = (numbers[head...].filter(isGood), 0)
    }
}

extension QueueRole {
    fileprivate var latestIsEnough: Bool {
        switch self {
        case .updates, .alone(latestIsEnough: true): true
        default: false
        }
    }
}
