/// A goal of the engine, as a number that is computed from one run.
struct Goal: Sendable {
    let title: String
    let atMost: Bool
    let bound: Double
    let unit: String
    /// The core settings in which the goal is judged.
    let cores: [Harness.Cores]
    /// Whether one thread does all the work.
    var alone = true
    /// Computes the value from times by workload and subject, in ns per operation. Nil if a required workload was not run.
    let value: @Sendable (_ time: (String, String) -> Double?) -> Double?

    struct Verdict {
        let goal: Goal
        let cores: Harness.Cores
        /// Computed from the medians of the wall times, from the best rounds, and from the medians of the processor times.
        let value: Double
        let best: Double
        let cpu: Double

        /// If never more than one thread runs, the processor time equals the wall time of a quiet machine.
        var isDecidedByCPU: Bool { goal.alone || cores == .pinned }
        var isMet: Bool {
            let decides = isDecidedByCPU ? cpu : value
            return goal.atMost ? decides <= goal.bound : decides >= goal.bound
        }
    }

    func verdicts(on results: [WorkloadResult]) -> [Verdict] {
        cores.compactMap { cores in
            func times(_ workload: String, _ subject: String) -> Times? {
                results.first { $0.cores == cores && $0.workload.name == workload }?.times(of: subject)
            }
            guard let median = value({ times($0, $1)?.wall.median }),
                let best = value({ times($0, $1)?.wall.best }),
                let cpu = value({ times($0, $1)?.cpu.median })
            else { return nil }
            return Verdict(goal: self, cores: cores, value: median, best: best, cpu: cpu)
        }
    }
}

extension Goal {
    private static let everywhere: [Harness.Cores] = [.pinned, .free]

    /// Our time, in ns per operation.
    private static func time(
        _ workload: String,
        atMost bound: Double,
        _ title: String,
        of subject: String = Catalogue.ours
    ) -> Goal {
        Goal(title: title, atMost: true, bound: bound, unit: "ns", cores: everywhere) { $0(workload, subject) }
    }

    /// Our time divided by a peer's.
    private static func share(
        _ workload: String,
        of peer: String,
        atMost bound: Double,
        on cores: [Harness.Cores] = everywhere,
        alone: Bool = true,
        _ title: String
    ) -> Goal {
        Goal(title: title, atMost: true, bound: bound, unit: "×", cores: cores, alone: alone) { time in
            guard let ours = time(workload, Catalogue.ours), let theirs = time(workload, peer) else { return nil }
            return ours / theirs
        }
    }

    /// A peer's time divided by ours.
    private static func speed(
        _ workload: String,
        against peer: String,
        atLeast bound: Double,
        alone: Bool = true,
        _ title: String
    ) -> Goal {
        Goal(title: title, atMost: false, bound: bound, unit: "×", cores: everywhere, alone: alone) { time in
            guard let ours = time(workload, Catalogue.ours), let theirs = time(workload, peer) else { return nil }
            return theirs / ours
        }
    }

    /// Our time in one workload divided by our time in another that should cost the same.
    private static func growth(from base: String, to workload: String, atMost bound: Double, _ title: String) -> Goal {
        Goal(title: title, atMost: true, bound: bound, unit: "×", cores: everywhere) { time in
            guard let first = time(base, Catalogue.ours), let last = time(workload, Catalogue.ours) else {
                return nil
            }
            return last / first
        }
    }

    /// The time that the textbook monitor adds to a turn, divided by the time of all heartbeat transitions in a turn of ours.
    private static func textbook(_ workload: String, costs turn: String, alone: Bool, _ title: String) -> Goal {
        Goal(title: title, atMost: false, bound: 20, unit: "×", cores: everywhere, alone: alone) { time in
            guard let plain = time(workload, Catalogue.ours), let textbook = time(workload, Catalogue.textbook),
                let heartbeat = time("heartbeats", turn)
            else { return nil }
            return (textbook - plain) / heartbeat
        }
    }

    private static func messages(_ workload: String, _ title: String) -> Goal {
        share(workload, of: Catalogue.socketPair, atMost: 1.3, alone: false, title)
    }

    static let all: [Goal] = [
        time("turns-main", atMost: 500, "turn, main thread"),
        time("turns-thread", atMost: 500, "turn, other thread"),
        speed("turns-main", against: Catalogue.foundation, atLeast: 6, "turn, main thread: faster than Foundation"),
        speed("turns-thread", against: Catalogue.foundation, atLeast: 2, "turn, other thread: faster than Foundation"),
        share(
            "round-trips",
            of: "floor: epoll",
            atMost: 1.2,
            on: [.pinned],
            alone: false,
            "wake-ups on one core: the floor's time"
        ),
        share("main-queue", of: "floor: epoll", atMost: 1.15, alone: false, "main queue: the floor's time"),
        speed(
            "main-queue",
            against: Catalogue.foundation,
            atLeast: 1.5,
            alone: false,
            "main queue: faster than Foundation"
        ),
        share(
            "blocks",
            of: "libuv, async and queue",
            atMost: 1,
            alone: false,
            "blocks from four threads: libuv's time"
        ),
        share("blocks", of: "SwiftNIO, execute", atMost: 1, alone: false, "blocks from four threads: SwiftNIO's time"),
        // 60 ms for 100,000.
        time("one-shots", atMost: 600, "one-shot, of 100,000"),
        share("random-timers", of: "libuv", atMost: 1, "a million timers: libuv's time"),
        growth(from: "fires-0", to: "fires-1m", atMost: 1.5, "fire: growth from 0 to 1,000,000 idle timers"),
        growth(from: "one-busy-10", to: "one-busy-10k", atMost: 1.2, "one busy descriptor: growth from 10 to 10,000"),
        share("all-busy", of: "libuv, poll", atMost: 1, "10,000 busy descriptors: libuv's time"),
        messages("port-requests", "a request and its reply: the socket pair's time"),
        messages("port-trips", "a message each way: the socket pair's time"),
        messages(Catalogue.messageFloodName(16), "messages of 16 bytes: the socket pair's time"),
        messages(Catalogue.messageFloodName(4_000), "messages of 4,000 bytes: the socket pair's time"),
        messages(Catalogue.messageFloodName(65_536), "messages of 64 KiB: the socket pair's time"),
        time("transitions", atMost: 5, "a transition, nobody watching"),
        Goal(title: "a turn's exact stamp", atMost: true, bound: 30, unit: "ns", cores: everywhere) { time in
            guard let plain = time("monitored-turns", Catalogue.ours),
                let watched = time("monitored-turns", Catalogue.watched)
            else { return nil }
            return watched - plain
        },
        textbook(
            "monitored-turns",
            costs: Catalogue.pollingTurn,
            alone: true,
            "a turn that polls: the textbook monitor's cost"
        ),
        textbook(
            "monitored-trips",
            costs: Catalogue.sleepingTurn,
            alone: false,
            "a turn that sleeps: the textbook monitor's cost"
        ),
    ]
}
