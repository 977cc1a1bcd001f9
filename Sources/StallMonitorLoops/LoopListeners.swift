import StallMonitor

/// Those that are to hear of what is found, until they say that it is enough.
struct LoopListeners: Sendable {
    typealias Listener = @Sendable (LoopFinding) -> Void

    private var listeners: [Int: Listener] = [:]
    private var last = 0

    var isEmpty: Bool { listeners.isEmpty }
    var all: [Listener] { Array(listeners.values) }

    /// - Returns: the number to remove it by.
    mutating func add(_ listener: @escaping Listener) -> Int {
        last += 1
        listeners[last] = listener
        return last
    }

    mutating func remove(_ number: Int) { listeners[number] = nil }
}
