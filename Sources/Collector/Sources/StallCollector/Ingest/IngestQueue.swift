internal import StallStore

/// Brings what several requests sent into the store in one transaction: the disk is asked once for all that came while it was busy.
actor IngestQueue {
    private let store: any StallStore
    /// Of what waits and is being written.
    private let maximumBytes: Int
    private var bytes = 0
    var waitingBytes: Int { bytes }
    private var isWriting = false
    private var waiting: [(arrivals: [Arrival], end: CheckedContinuation<Turn, Never>)] = []

    /// What a request that waited is told.
    private enum Turn {
        case written(Result<Int, any Error>)
        /// It writes next, with all that wait.
        case writes
    }

    struct Overloaded: Error {}

    init(_ store: any StallStore, maximumBytes: Int) { (self.store, self.maximumBytes) = (store, maximumBytes) }

    /// Returns when it is on the disk.
    ///
    /// - Parameter size: what it takes in memory.
    /// - Returns: how many of all that were written with it were new.
    /// - Throws: ``Overloaded`` at once where too much waits already; otherwise what the store throws.
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
        // Those that came meanwhile are written by the first of them.
        if waiting.isEmpty {
            isWriting = false
        } else {
            waiting.removeFirst().end.resume(returning: .writes)
        }
        // What was new is counted once.
        for other in others { other.end.resume(returning: .written(result.map { _ in 0 })) }
        return try result.get()
    }
}
