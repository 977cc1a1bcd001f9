import CPeers

/// What one round of one peer took.
struct Outcome: Sendable {
    let time: peer_time
    /// What the callbacks counted. The harness compares it with what was asked for before it believes the time.
    let done: Int
}

extension Outcome {
    init(_ outcome: peer_outcome) { self.init(time: outcome.time, done: Int(outcome.done)) }

    /// Times `body`, which returns what was done.
    static func timing(_ body: () -> Int) -> Outcome {
        let start = peer_now()
        let done = body()
        return Outcome(time: peer_since(start), done: done)
    }

    static func + (one: Outcome, other: Outcome) -> Outcome {
        Outcome(time: peer_sum(one.time, other.time), done: one.done + other.done)
    }
}

/// One way of doing a workload.
struct Subject: Sendable {
    let name: String
    /// Per round. Fewer than the others' where a peer would take minutes; the figures are per operation all the same.
    let operations: Int
    /// At most so many rounds, where one takes seconds.
    let rounds: Int?
    /// Does so many operations, on the thread that the workload names.
    let round: @Sendable (Int) -> Outcome

    func plays(_ round: Int) -> Bool {
        guard let rounds else { return true }
        return round <= rounds && (round > 0 || rounds > 1)
    }
}

/// The same work for all peers.
struct Workload: Sendable {
    enum Place: Sendable { case mainThread, otherThread }

    let name: String
    let title: String
    let place: Place
    /// What one operation is.
    let operation: String
    let rounds: Int
    /// What one operation carries, where that is told as bytes per second.
    private(set) var bytes: Int?
    var subjects: [Subject] = []
    let operations: Int

    init(
        _ name: String,
        _ title: String,
        per operation: String,
        _ operations: Int,
        rounds: Int,
        on place: Place = .otherThread
    ) {
        self.name = name
        self.title = title
        self.operation = operation
        self.operations = operations
        self.rounds = rounds
        self.place = place
    }

    /// Has messages and bytes per second printed.
    func carrying(_ bytes: Int) -> Workload {
        var copy = self
        copy.bytes = bytes
        return copy
    }

    /// Adds a subject, in the order of the printed table.
    func with(
        _ name: String,
        _ operations: Int? = nil,
        rounds: Int? = nil,
        _ round: @escaping @Sendable (Int) -> Outcome
    ) -> Workload {
        var copy = self
        copy.subjects.append(
            Subject(name: name, operations: operations ?? self.operations, rounds: rounds, round: round)
        )
        return copy
    }

    /// Adds a subject that is written in C.
    func with(
        _ name: String,
        _ operations: Int? = nil,
        rounds: Int? = nil,
        c round: @escaping @Sendable (UInt64) -> peer_outcome
    ) -> Workload {
        with(name, operations, rounds: rounds) { Outcome(round(UInt64($0))) }
    }
}
