import StallStore

/// Inserts the records of several requests in one transaction: everything that arrives during a write is included in the next
/// one.
actor IngestQueue {
    private let store: any StallStore
    /// The limit of ``waitingBytes``.
    private let maximumBytes: Int
    /// The arrivals that wait or are being written, in bytes of memory.
    private(set) var waitingBytes = 0
    private var isWriting = false
    private var waiting: [(arrivals: [Arrival], end: CheckedContinuation<Turn, Never>)] = []

    /// How a waiting request continues.
    private enum Turn {
        case written(Result<Int, any Error>)
        /// It writes next, and includes all requests that are waiting.
        case writes
    }

    struct Overloaded: Error {}

    init(_ store: any StallStore, maximumBytes: Int) { (self.store, self.maximumBytes) = (store, maximumBytes) }

    /// Returns when the arrivals are on the disk.
    ///
    /// - Parameter size: The arrivals' memory in bytes.
    /// - Returns: How many of all arrivals that were written together are new.
    /// - Throws: ``Overloaded`` at once if too much is waiting; otherwise the store's error.
    func insert(_ arrivals: [Arrival], size: Int) async throws -> Int {
        guard waitingBytes == 0 || waitingBytes + size <= maximumBytes else { throw Overloaded() }
        waitingBytes += size
        defer { waitingBytes -= size }
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
        // The first of the waiting requests writes what has arrived meanwhile.
        if waiting.isEmpty {
            isWriting = false
        } else {
            waiting.removeFirst().end.resume(returning: .writes)
        }
        // New arrivals are counted only once.
        for other in others { other.end.resume(returning: .written(result.map { _ in 0 })) }
        return try result.get()
    }
}
