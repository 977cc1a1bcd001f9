import HTTPTypes
import Hummingbird
import StallStore

/// Reports whether the store works: `GET /health`. It needs no token, so it queries the store at most once a second.
actor Health {
    private let store: any StallStore
    private let patience: Duration
    private let validity: Duration
    private var known: (isWell: Bool, at: ContinuousClock.Instant)?
    /// The query in progress. All requests that arrive meanwhile wait for it.
    private var question: Task<Bool, Never>?

    /// - Parameters:
    ///   - patience: How long the store may take.
    ///   - validity: How long an answer is used.
    init(_ store: any StallStore, patience: Duration = .seconds(5), validity: Duration = .seconds(1)) {
        (self.store, self.patience, self.validity) = (store, patience, validity)
    }

    nonisolated func add(to router: some RouterMethods<CollectorContext>) {
        router.get("health") { _, _ in
            let isWell = await self.isWell()
            return try JSONAnswer.make(
                ["status": isWell ? "ok" : "the store does not answer"],
                status: isWell ? .ok : .serviceUnavailable
            )
        }
    }

    func isWell() async -> Bool {
        if let known, known.at.duration(to: .now) < validity { return known.isWell }
        if let question { return await question.value }
        let question = Task { await self.answers() }
        self.question = question
        let isWell = await question.value
        (known, self.question) = ((isWell, .now), nil)
        return isWell
    }

    /// A store that does not answer within this time counts as not working. A later answer is ignored.
    private func answers() async -> Bool {
        let (answers, answer) = AsyncStream.makeStream(of: Bool.self)
        let question = Task { [store] in answer.yield((try? await store.check()) != nil) }
        let clock = Task { [patience] in
            try await Task.sleep(for: patience)
            answer.yield(false)
        }
        defer {
            question.cancel()
            clock.cancel()
        }
        for await isWell in answers { return isWell }
        return false
    }
}
