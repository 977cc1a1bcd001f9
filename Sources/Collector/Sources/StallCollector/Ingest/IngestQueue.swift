import StallStore

/// Inserts the records of several requests in one transaction: everything that arrives during a write is written together by the next one.
actor IngestQueue {
    private let store: any StallStore
    /// The limit of what is waiting or being written.
    private let maximumBytes: Int
    private var bytes = 0
    var waitingBytes: Int { bytes }
    private var isWriting = false
    private var waiting: [(arrivals: [Arrival], end: CheckedContinuation<Turn, Never>)] = []

    /// How a waiting request continues.
    private enum Turn {
        case written(Result<Int, any Error>)
        /// It writes next, together with all that are waiting.
        case writes
    }

    struct Overloaded: Error {}

    init(_ store: any StallStore, maximumBytes: Int) { (self.store, self.maximumBytes) = (store, maximumBytes) }

    /// Returns when the arrivals are on the disk.
    ///
    /// - Parameter size: the arrivals' bytes in memory.
    /// - Returns: how many of all arrivals written together were new.
    /// - Throws: ``Overloaded`` at once if too much is waiting already; otherwise what the store throws.
    func insert(_ arrivals: [Arrival], size: Int) async throws -> Int {
        guard bytes == 0 || bytes + size <= maximumBytes else { throw Overloaded() }
        bytes += size
        defer { bytes -= size }
        var mine = arrivals
        if isWriting {
            switch await withCheckedContinuation({ waiting.append((arrivals, $0)) }) {
            case .written(let result): return try result.get()
            case .writes: break
            }
        }
        isWriting = true
        let others = waiting
        waiting = []
        mine += others.flatMap(\.arrivals)
        let result: Result<Int, any Error>
        do {
            result = .success(try await store.insert(mine))
        } catch {
            result = .failure(error)
        }
        // What arrived meanwhile is written by the first of the waiting requests.
        if waiting.isEmpty {
            isWriting = false
        } else {
            waiting.removeFirst().end.resume(returning: .writes)
        }
        // New arrivals are counted once.
        for other in others { other.end.resume(returning: .written(result.map { _ in 0 })) }
        return try result.get()
    }
}
