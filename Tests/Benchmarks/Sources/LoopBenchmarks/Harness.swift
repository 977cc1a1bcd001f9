import CPeers

/// Runs workloads: in each round every peer once, one after the other, so that other load on the machine affects all alike.
struct Harness {
    /// The fraction of the rounds and operations to run, for a quick run.
    let share: Double

    enum Cores: String, CaseIterable {
        /// Every thread on one core.
        case pinned
        /// Placed by the kernel.
        case free
    }

    func run(_ workload: Workload, on cores: Cores) -> WorkloadResult {
        switch cores {
        case .pinned: peer_pin()
        case .free: peer_unpin()
        }
        defer { peer_unpin() }
        let times =
            switch workload.place {
            case .mainThread: playRounds(of: workload)
            case .otherThread: onNewThread { playRounds(of: workload) }
            }
        return WorkloadResult(workload: workload, cores: cores, times: times)
    }

    private func playRounds(of workload: Workload) -> [Times] {
        var times = [[(wall: Double, cpu: Double)]](repeating: [], count: workload.subjects.count)
        let rounds = max(1, Int(Double(workload.rounds) * share))
        // One round before the first is for warm-up, except for workloads that take seconds.
        for round in (rounds > 1 ? 0 : 1)...rounds {
            for (index, subject) in workload.subjects.enumerated() where subject.plays(round) {
                let time = playRound(of: subject)
                if round > 0 { times[index].append(time) }
            }
        }
        return times.map { times in
            Times(wall: Distribution(times.map(\.wall)), cpu: Distribution(times.map(\.cpu)))
        }
    }

    /// Nanoseconds per operation.
    private func playRound(of subject: Subject) -> (wall: Double, cpu: Double) {
        let outcome = subject.round(subject.operations)
        precondition(
            outcome.done == subject.operations,
            "\(subject.name) did \(outcome.done) of \(subject.operations) operations: its time means nothing"
        )
        let operations = Double(subject.operations)
        return (Double(outcome.time.wall_ns) / operations, Double(outcome.time.cpu_ns) / operations)
    }
}

/// Runs `body` on a separate thread, waits until the thread has ended and freed its resources, and returns the result of `body`.
func onNewThread<Result>(_ body: () -> Result) -> Result {
    var result: Result?
    withoutActuallyEscaping({ result = body() }) { call in
        let work = Work(call: call)
        unsafe peer_run_on_thread(
            { unsafe Unmanaged<Work>.fromOpaque($0!).takeUnretainedValue().call() },
            Unmanaged.passUnretained(work).toOpaque()
        )
    }
    guard let result else { preconditionFailure("the thread ended without a result") }
    return result
}

private final class Work {
    let call: () -> Void
    init(call: @escaping () -> Void) { self.call = call }
}
