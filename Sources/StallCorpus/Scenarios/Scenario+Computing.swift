import Foundation
import Glibc
import RunLoopKit
import StallReports

extension Scenario {
    /// The thread computes: in the server's code, in libraries that it called, or in the kernel.
    static let computing: [Scenario] = [
        computing("compute-main", on: .mainLoop, culprit: "computeInOwnCode") { computeInOwnCode(until: $0) },
        computing("compute-worker", on: .worker, culprit: "computeInOwnCode") { computeInOwnCode(until: $0) },
        computing("compute-main-actor", on: .mainActor, culprit: "computeInOwnCode") { computeInOwnCode(until: $0) },
        computing("json-decode", on: .mainActor, culprit: "decodeDocument") { document in
            { end in decodeDocument(document, until: end) }
        } prepare: {
            (try? JSONEncoder().encode(Row.table(5_000).map(\.scores))) ?? Data()
        },
        computing("json-encode", on: .worker, culprit: "encodeDocument") { rows in
            { end in encodeDocument(rows, until: end) }
        } prepare: {
            Row.table(5_000)
        },
        computing("regex", on: .worker, culprit: "matchPattern") {
            matchPattern(String(backtracking.suffix(13)), until: $0)
        },
        computing("regular-expression", on: .mainLoop, culprit: "matchExpression") {
            matchExpression(backtracking, until: $0)
        },
        computing("sort", on: .worker, culprit: "sortTable") { rows in
            { end in sortTable(rows, until: end) }
        } prepare: {
            Row.table(10_000)
        },
        computing("generic-closure", on: .mainActor, culprit: "transformTable") { transformTable(until: $0) },
        computing("recursion", on: .worker, culprit: "descend") { descend(until: $0) },
        computing("kernel-time", on: .mainLoop, culprit: "readZeroes") { readZeroes(until: $0) },
        .stall("library-callback", .onCPU, on: .worker, [.onCPU], culprit: "visitFile") { stage in
            stage.stall { walkFiles(in: stage.directory, until: .now.advanced(by: Stage.usualLength)) }
        },
    ]

    /// The input that makes the patterns above backtrack for a long time.
    private static let backtracking = String(repeating: "a", count: 20) + "c"

    private static func computing(
        _ name: String,
        on place: Place,
        culprit: String,
        _ work: @escaping @Sendable (MonotonicInstant) -> Int
    ) -> Scenario {
        .stall(name, .onCPU, on: place, [.onCPU], culprit: culprit) { stage in
            stage.stall { work(.now.advanced(by: Stage.usualLength)) }
        }
    }

    /// With a prop that is created before the loop stalls.
    private static func computing<Prop: Sendable>(
        _ name: String,
        on place: Place,
        culprit: String,
        _ work: @escaping @Sendable (Prop) -> (MonotonicInstant) -> Int,
        prepare: @escaping @Sendable () -> Prop
    ) -> Scenario {
        .stall(name, .onCPU, on: place, [.onCPU], culprit: culprit) { stage in
            let prop = prepare()
            stage.stall { work(prop)(.now.advanced(by: Stage.usualLength)) }
        }
    }

    /// The thread is runnable, but does not get a CPU.
    static let starved: [Scenario] = [
        .stall("starved-by-threads", .starved, on: .worker, [.starved], culprit: "computeUntilTold") { stage in
            let isDone = StopFlag()
            let thread = try stage.threadOfPlace()
            let busy = BusyThreads(8, cpu: 0)
            stage.afterwards(.milliseconds(800)) {
                busy.stop()
                setPriority(of: thread, to: 0)
                isDone.stop()
            }
            stage.stall {
                bindThread(to: 0)
                setPriority(of: thread, to: 19)
                return computeUntilTold(isDone)
            }
        },
        .stall("starved-by-quota", .starved, on: .mainLoop, [.starved], culprit: "computeInOwnCode") { stage in
            let group = try ControlGroup.withQuota(percent: 20)
            defer { group.leave() }
            try group.enter()
            stage.stall { computeInOwnCode(until: .now.advanced(by: .seconds(4))) }
        },
    ]
}

/// From -20, the most urgent, to 19 (setpriority(2)).
private func setPriority(of thread: Int32, to nice: Int32) {
    _ = setpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(thread), nice)
}

extension Stage {
    /// The kernel's number of the thread whose turns the scenario is about.
    fileprivate func threadOfPlace() throws -> Int32 {
        guard let thread = loop.thread else { throw SkippedScenario("the loop has no thread yet") }
        return thread.id
    }
}
