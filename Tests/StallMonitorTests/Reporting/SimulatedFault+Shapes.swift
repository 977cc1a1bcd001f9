// Faults of every shape met so far, each seen through three to twelve samples.

import TestSupport

private typealias Frame = SimulatedFrame

/// The loop's call, and what is below it.
private let outside = [
    Frame("event_run_loop_is_calling_out_to_a_block"), Frame("turn"), Frame("MAIN"), Frame("_start"),
]
private let witness = "$s6Server3RowVSeAASe4fromxs7Decoder_p_tKcfCTW"
private let merged = "$s4Shop10startTimeryyFyycfU_Tm"

/// A place in running code, a different one each time.
private func running(_ name: String, _ random: inout SplitMix64) -> Frame {
    Frame(name, site: .random(in: 1...400, using: &random), state: random.next())
}

private func chance(_ share: Double, _ random: inout SplitMix64) -> Bool {
    Double.random(in: 0..<1, using: &random) < share
}

/// A library's frames, with random depth.
private func library(_ random: inout SplitMix64) -> [Frame] {
    let depth = Int.random(in: 1...5, using: &random)
    return (0..<depth).map {
        $0 == 0
            ? running("memcpy", &random)
            : Frame("lib\($0)", site: Int.random(in: 1...3, using: &random), state: random.next())
    }
}

extension SimulatedFault {
    static let all: [SimulatedFault] = waits + computations + helpers + phases + libraries + unsure + storms

    /// A fault whose stack is the same each time.
    private static func wait(_ name: String, _ culprit: String, _ frames: [SimulatedFrame]) -> SimulatedFault {
        SimulatedFault(name: name, culprit: culprit) { _, _ in
            SimulatedStack(frames: frames + outside, isRunning: false)
        }
    }

    private static var waits: [SimulatedFault] {
        [
            wait("wait", "LOAD", [Frame("read"), Frame("LOAD"), Frame("HANDLE")]),
            wait(
                "wait in a library",
                "SAVE",
                [Frame("fsync"), Frame("flush"), Frame("close"), Frame("SAVE"), Frame("HANDLE")]
            ),
            SimulatedFault(name: "wait by turns", culprit: "COPY") { _, random in
                let isReading = Bool.random(using: &random)
                let inner = [
                    Frame(isReading ? "read" : "write"), Frame("COPY", site: isReading ? 1 : 2), Frame("HANDLE"),
                ]
                return SimulatedStack(frames: inner + outside, isRunning: false)
            },
            SimulatedFault(name: "wait that is awaited", culprit: "FETCH") { _, random in
                let isSeen = !chance(0.1, &random)
                return SimulatedStack(
                    frames: [Frame("read"), Frame("get")] + outside,
                    awaiting: isSeen ? (1, ["perform", "FETCH", "HANDLE"]) : nil
                )
            },
        ]
    }

    private static var computations: [SimulatedFault] {
        [
            SimulatedFault(name: "computing", culprit: "SUM") { _, random in
                SimulatedStack(frames: [running("SUM", &random), Frame("HANDLE", state: 1)] + outside)
            },
            SimulatedFault(name: "computing, deep", culprit: "SUM") { _, random in
                let callers = [Frame("PAGE", state: 1), Frame("RENDER", state: 2), Frame("HANDLE", state: 3)]
                return SimulatedStack(frames: [running("SUM", &random)] + callers + outside)
            },
            SimulatedFault(name: "computing, nothing known of registers", culprit: "SUM") { _, random in
                let place = Frame("SUM", site: .random(in: 1...400, using: &random))
                return SimulatedStack(frames: [place, Frame("PAGE"), Frame("HANDLE")] + outside)
            },
            SimulatedFault(name: "recursion", culprit: "WALK") { _, random in
                let depth = Int.random(in: 1...9, using: &random)
                let steps = (0..<depth).map { _ in
                    Frame("WALK", site: Int.random(in: 1...2, using: &random), state: random.next())
                }
                return SimulatedStack(
                    frames: [running("WALK", &random)] + steps + [Frame("HANDLE", state: 1)] + outside
                )
            },
            SimulatedFault(name: "mutual recursion", culprit: "EVEN") { _, random in
                let depth = Int.random(in: 1...9, using: &random)
                let steps = (0..<depth).map { Frame($0.isMultiple(of: 2) ? "EVEN" : "ODD", state: random.next()) }
                return SimulatedStack(
                    frames: [running("hash", &random)] + steps.reversed() + [Frame("HANDLE", state: 1)] + outside
                )
            },
            SimulatedFault(name: "computing, some stacks cut off", culprit: "SUM") { _, random in
                let inner = [running("SUM", &random), Frame("PAGE", state: 1)]
                guard chance(0.1, &random) else {
                    return SimulatedStack(frames: inner + [Frame("HANDLE", state: 3)] + outside)
                }
                return SimulatedStack(frames: inner, isComplete: false)
            },
        ]
    }

    /// A function that endlessly calls now a helper of its own, now a library's.
    private static func helper(_ share: Double, knowsRegisters: Bool = true) -> SimulatedFault {
        let name = "helper in \(Int(share * 100)) %" + (knowsRegisters ? "" : ", nothing known of registers")
        return SimulatedFault(name: name, culprit: "TOTAL") { _, random in
            let isIn = chance(share, &random)
            let inner = isIn ? [running("clock", &random), Frame("NOW", state: random.next())] : library(&random)
            var frames = inner + [Frame("TOTAL", site: isIn ? 1 : 2, state: random.next()), Frame("HANDLE", state: 7)]
            if !knowsRegisters { for index in frames.indices { frames[index].state = nil } }
            return SimulatedStack(frames: frames + outside)
        }
    }

    private static var helpers: [SimulatedFault] {
        [0.3, 0.5, 0.7, 0.85, 0.95, 1].map { helper($0) } + [0.3, 0.5].map { helper($0, knowsRegisters: false) }
    }

    /// - Parameter parts: by when each is over, and what it is.
    private static func phases(_ name: String, _ culprit: String, _ parts: [(until: Double, function: String)])
        -> SimulatedFault
    {
        SimulatedFault(name: name, culprit: culprit) { part, random in
            let index = parts.firstIndex { part < $0.until } ?? parts.count - 1
            let inner =
                parts[index].function == ""
                ? [Frame("usleep")] : [running("lib1", &random), Frame(parts[index].function, state: 5)]
            return SimulatedStack(
                frames: inner + [Frame("WORK", site: index, state: UInt64(index)), Frame("HANDLE", state: 7)] + outside
            )
        }
    }

    private static var phases: [SimulatedFault] {
        [
            phases("two halves", "WORK", [(0.5, "READ"), (1, "PARSE")]),
            phases("three parts", "WORK", [(0.4, "READ"), (0.6, ""), (1, "PARSE")]),
            SimulatedFault(name: "prelude, then a helper", culprit: "TOTAL") { part, random in
                guard part >= 0.08 else {
                    return SimulatedStack(frames: [Frame("open"), Frame("HANDLE", site: 9)] + outside)
                }
                return helper(0.8).look(part, &random)
            },
            phases("short prelude", "PARSE", [(0.03, ""), (1, "PARSE")]),
            phases("short end", "PARSE", [(0.97, "PARSE"), (1, "")]),
        ]
    }

    private static var libraries: [SimulatedFault] {
        [
            SimulatedFault(name: "closure that a library calls for each value", culprit: "LOAD") { _, random in
                let inner = [running("ROW", &random), Frame("map", state: random.next()), Frame("LOAD", state: 3)]
                return SimulatedStack(frames: inner + outside)
            },
            SimulatedFault(name: "init that a decoder calls", culprit: "LOAD") { _, random in
                let row = chance(0.6, &random) ? [Frame("ROW.INIT"), Frame(witness)] : []
                let inner = library(&random) + row + [Frame("unwrap", state: random.next()), Frame("decode", state: 4)]
                return SimulatedStack(frames: inner + [Frame("LOAD", state: 3)] + outside)
            },
            SimulatedFault(name: "library, deep and shallow", culprit: "LOAD") { _, random in
                SimulatedStack(
                    frames: library(&random) + [Frame("LOAD", state: 3), Frame("HANDLE", state: 1)] + outside
                )
            },
            SimulatedFault(name: "nothing own", culprit: "poll") { _, random in
                SimulatedStack(frames: [Frame("poll"), Frame("run")] + outside, isRunning: false)
            },
        ]
    }

    private static var unsure: [SimulatedFault] {
        [
            wait("merged closure", "START", [Frame("read"), Frame(merged), Frame("START"), Frame("HANDLE")]),
            SimulatedFault(name: "merged closure that computes", culprit: "START") { _, random in
                SimulatedStack(
                    frames: [running(merged, &random), Frame("START", state: 1), Frame("HANDLE", state: 2)] + outside
                )
            },
        ]
    }

    private static var storms: [SimulatedFault] {
        [
            SimulatedFault(name: "storm of jobs", culprit: "SPIN") { _, random in
                let drain = Frame("drain", state: random.next())
                guard chance(0.65, &random) else {
                    return SimulatedStack(frames: [running("sem_post", &random), drain] + outside)
                }
                let inner = chance(0.6, &random) ? [] : [running("clock", &random)]
                return SimulatedStack(
                    frames: inner + [
                        running("SPIN", &random),
                        Frame("JOB", site: .random(in: 1...2, using: &random), state: random.next()), drain,
                    ] + outside
                )
            },
            SimulatedFault(name: "one function from two callers", culprit: "QUERY") { _, random in
                let caller = Frame(Bool.random(using: &random) ? "LIST" : "SHOW", state: random.next())
                let inner = [running("step", &random), Frame("QUERY", state: random.next()), caller]
                return SimulatedStack(frames: inner + [Frame("drain", state: random.next())] + outside)
            },
        ]
    }
}
