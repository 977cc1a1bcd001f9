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
        if isWriting {
            switch await withCheckedContinuation({ waiting.append((arrivals, $0)) }) {
            case .written(let result): return try result.get()
            case .writes: break
            }
        }
        isWriting = true
        let others = waiting
        waiting = []
        let results = await write([arrivals] + others.map(\.arrivals))
        // The first of the waiting requests writes what has arrived meanwhile.
        if waiting.isEmpty {
            isWriting = false
        } else {
            waiting.removeFirst().end.resume(returning: .writes)
        }
        for (other, result) in zip(others, results.dropFirst()) { other.end.resume(returning: .written(result)) }
        return try results[0].get()
    }

    /// After this time, what failed did so because the store does not answer. The senders would wait still longer.
    private static let answerTime = Duration.seconds(5)

    /// Writes all requests together. If that fails, one of them may be the reason: then each is written alone.
    ///
    /// - Returns: A result for each request.
    private func write(_ requests: [[Arrival]]) async -> [Result<Int, any Error>] {
        let begun = ContinuousClock.now
        do {
            let new = try await store.insert(requests.flatMap { $0 })
            // New arrivals are counted only once.
            return requests.indices.map { .success($0 == 0 ? new : 0) }
        } catch {
            guard requests.count > 1, begun.duration(to: .now) < Self.answerTime else {
                return requests.map { _ in .failure(error) }
            }
            var (results, failures): ([Result<Int, any Error>], Int) = ([], 0)
            for request in requests {
                // If two in a row fail, the store is the reason.
                guard failures < 2 else {
                    results.append(.failure(error))
                    continue
                }
                let result = await write([request])[0]
                if case .failure = result { failures += 1 } else { failures = 0 }
                results.append(result)
            }
            return results
        }
    }
}
