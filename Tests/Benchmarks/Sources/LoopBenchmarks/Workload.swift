import CPeers

/// The result of one round of one peer.
struct Outcome: Sendable {
    let time: peer_time
    /// The number counted by the callbacks. The harness compares it with the requested number before it uses the time.
    let done: Int
}

extension Outcome {
    init(_ outcome: peer_outcome) { self.init(time: outcome.time, done: Int(outcome.done)) }

    /// Measures the time of `body`, which returns the number of operations done.
    static func timing(_ body: () -> Int) -> Outcome {
        let start = peer_now()
        let done = body()
        return Outcome(time: peer_since(start), done: done)
    }

    static func + (one: Outcome, other: Outcome) -> Outcome {
        Outcome(time: peer_sum(one.time, other.time), done: one.done + other.done)
    }
}

/// One implementation of a workload.
struct Subject: Sendable {
    let name: String
    /// Per round. Smaller than for the others if a peer would take minutes; the figures are per operation anyway.
    let operations: Int
    /// The maximum number of rounds, if one round takes seconds.
    let rounds: Int?
    /// Executes this number of operations, on the thread that the workload specifies.
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
    /// The name of one operation.
    let operation: String
    let rounds: Int
    /// The size of one operation, if it is also printed as bytes per second.
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

    /// Enables the output of messages and bytes per second.
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
