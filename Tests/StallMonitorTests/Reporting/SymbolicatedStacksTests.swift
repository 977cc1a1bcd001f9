import RunLoopKit
import StallReports
import Symbolication
import Testing

@testable import StackCapture
@testable import StallMonitor

/// Stacks are written innermost first, as the names of their functions; own functions in capitals.
@Suite("The culprit, from samples")
struct SymbolicatedStacksTests {
    /// - Parameter times: when each was taken, in milliseconds; in sequence by default.
    ///
    /// What follows `await` in a stack awaits the frame before it; what follows `|`, the executor, is on the stack
    /// again.
    private func symbolicated(_ stacks: [[String]], times: [Int]? = nil) -> SymbolicatedStacks {
        let parts = stacks.map { $0.split(separator: "await").map(Array.init) }
        let chains = parts.map { $0.count > 1 ? $0[1].split(separator: "|").map(Array.init) : [] }
        let frames = zip(parts, chains).map { $0[0] + ($1.count > 1 ? $1[1] : []) }
        let names = zip(frames, chains).flatMap { $0 + ($1.first ?? []) }
        let samples = stacks.indices.map { index in
            let (stack, time) = (frames[index], times?[index] ?? index)
            let callers = chains[index].first.map {
                AsyncCallers(
                    addresses: $0.map { _ in 1 },
                    frame: parts[index][0].count - 1,
                    end: .task,
                    taskNumber: nil
                )
            }
            return StackSample(
                time: MonotonicInstant(nanoseconds: UInt64(1_000 + time) * 1_000_000),
                stack: CapturedStack(
                    frames: stack.map { _ in .init(address: 1, found: .unwindTable) },
                    method: .quiet,
                    asyncCallers: callers,
                    cost: .init(heldNanoseconds: 0, unwindNanoseconds: 0, bytesCopied: 0)
                )
            )
        }
        return SymbolicatedStacks(
            samples,
            thread: .init(id: 1),
            clock: WallClockAnchor(),
            name: { addresses in
                Resolution(
                    frames: zip(addresses, names).map { Self.frame($0.address, $1) },
                    modules: [LoadedModule(path: "/srv/shop", buildID: nil, loadBase: 0)]
                )
            },
            isOwn: { frame, _ in frame.symbol == frame.symbol?.uppercased() || frame.symbol?.hasPrefix("py:") == true }
        )
    }

    /// `inner<outer` for a call that was inlined.
    private static func frame(_ address: UInt, _ name: String) -> SymbolicatedFrame {
        let names = name.split(separator: "<").map(String.init)
        var frame = SymbolicatedFrame(address: address, moduleOffset: 0, symbol: names.last, function: names.last)
        let isScript = name.hasPrefix("JS:") || name.hasPrefix("py:")
        frame.moduleIndex = isScript ? nil : 0
        frame.location = isScript ? nil : SourcePosition(file: "/src/\(names[names.count - 1]).swift", line: 7)
        frame.inlined = names.dropLast().map {
            InlinedCall(symbol: $0, function: $0, location: SourcePosition(file: "/src/\($0).swift", line: 42))
        }
        return frame
    }

    @Test("An own function inlined into a library function is the culprit, with its own line")
    func inlined() throws {
        let taken = symbolicated([["read", "PARSE<map", "HANDLE", "main"]])
        let culprit = try #require(taken.culprit)
        #expect(culprit.function == "PARSE" && culprit.file == "/src/PARSE.swift" && culprit.line == 42)
        #expect(taken.stacks[0].frames.map(\.kind) == [nil, .inlined, nil, nil, nil])
        #expect(taken.stacks[0].frames[culprit.frame].symbol == "PARSE")
        #expect(Set(taken.stacks[0].frames.map(\.address)) == [1])
    }

    @Test("The culprit is a function of the script rather than one of its interpreter, or of Rust rather than of C")
    func script() {
        let script = symbolicated([["poll", "UV_POLL", "JS:LOAD /A.JS:1:2", "JS:MAIN /A.JS:9:9", "NODE_START"]])
        #expect(script.culprit?.function == "LOAD")
        #expect(script.culpritFrames.filter(\.own).map(\.function) == ["LOAD", "MAIN"])
        #expect(script.stacks[0].frames.map(\.own) == [false, false, true, true, false])
        // A library of Rust that the script calls, and one of C in a program of Rust.
        #expect(symbolicated([["poll", "_RC1A", "JS:LOAD /A.JS:1:2", "NODE_START"]]).culprit?.function == "LOAD")
        #expect(symbolicated([["STEP", "_RC1A", "MAIN"]]).culprit?.function == "A")
        // Functions without a name, of which one calls the other again and again.
        let (outer, inner) = ("JS: /A.JS:1:4", "JS: /A.JS:3:4")
        let loop = symbolicated([[inner, outer], [outer], [inner, outer]])
        #expect(loop.culprit?.function == "(anonymous at A.JS:1)")
        // Python names no line.
        let python = symbolicated([["poll", "py::load:/srv/a.py"]])
        #expect(
            python.culprit?.function == "load" && python.culprit?.file == "/srv/a.py" && python.culprit?.line == nil
        )
        // Nothing of the script is known.
        #expect(symbolicated([["poll", "UV_POLL", "NODE_START"]]).culprit?.function == "UV_POLL")
    }

    @Test("Of many other threads with deep stacks, those that do not fit into the report are named without a stack")
    func manyOthers() {
        var taken = symbolicated([["read", "HANDLE"]])
        let cost = CapturedStack.Cost(heldNanoseconds: 0, unwindNanoseconds: 0, bytesCopied: 0)
        let frames = [CapturedStack.Frame](repeating: .init(address: 1, found: .unwindTable), count: 1000)
        let stack = CapturedStack(frames: frames, method: .quiet, cost: cost)
        let groups = (1...20 as ClosedRange<Int32>).map { number -> ThreadStacks.Group in
            let thread = ThreadStacks.Thread(threadID: number, name: "", method: .quiet, systemCall: nil, cost: cost)
            return ThreadStacks.Group(threads: [thread], stack: stack)
        }
        taken.add(
            ThreadStacks(groups: groups, missing: [], duration: .zero),
            at: .now,
            clock: WallClockAnchor(),
            name: { addresses in
                Resolution(frames: addresses.map { .init(address: $0.address, moduleOffset: 0) }, modules: [])
            },
            isOwn: { _, _ in false }
        )
        let others = taken.stacks.filter { $0.role == .other }
        #expect(others.map(\.thread.id) == Array(1...20))
        #expect(others.prefix(16).allSatisfy { $0.frames.count == 1000 && $0.error == nil })
        #expect(others.dropFirst(16).allSatisfy { $0.frames.isEmpty && !$0.complete && $0.error != nil })
    }

    @Test("Inlining, lines and library functions do not change the fingerprint")
    func fingerprint() {
        func make(_ stack: [String]) -> Fingerprint {
            .make(kind: .blocked, frames: symbolicated([stack]).culpritFrames, modules: [])
        }
        #expect(make(["read", "INNER<PARSE", "HANDLE"]) == make(["read", "INNER", "PARSE", "HANDLE"]))
        #expect(make(["read", "PARSE<map", "HANDLE"]) == make(["read", "PARSE", "filter", "HANDLE"]))
        #expect(make(["read", "PARSE<map", "HANDLE"]) != make(["read", "map", "HANDLE"]))
    }

    private func culprit(_ stacks: [String]...) -> String? { symbolicated(stacks).culprit?.function }

    @Test("The innermost own function of the only sample")
    func single() {
        #expect(culprit(["read", "PARSE", "HANDLE", "main"]) == "PARSE")
    }

    @Test("A function that comes and goes is not to blame; one that stays is")
    func mostOften() {
        #expect(
            culprit(["memcpy", "ROW", "map", "LOAD", "main"], ["scan", "LOAD", "main"], ["ROW", "map", "LOAD"])
                == "LOAD"
        )
    }

    @Test("A function on every stack counts once a stack, although it calls itself")
    func recursion() {
        #expect(culprit(["WALK", "WALK", "WALK", "LOAD"], ["LOAD"]) == "LOAD")
    }

    @Test("A Decodable's own init, called by a decoder for each value, is not to blame; the decoder's caller is")
    func standardWitness() {
        let witness = "$s6Server3RowVSeAASe4fromxs7Decoder_p_tKcfCTW"
        #expect(Demangler.demangle(witness).hasPrefix("protocol witness for Swift.Decodable.init"))
        #expect(culprit(["decode", "ROW.INIT", witness, "unwrap", "LOAD", "main"]) == "LOAD")
        #expect(culprit(["decode", "ROW.INIT", witness, "unwrap", "main"]) == "ROW.INIT")
        // An optimiser moves the beginning of the one into the other.
        #expect(culprit(["decode", "ROW.INIT<" + witness, "unwrap", "LOAD"]) == "LOAD")
        #expect(culprit(["decode", "ROW.INIT", "ROW.INIT<" + witness, "unwrap", "LOAD"]) == "LOAD")
        #expect(culprit(["decode", "HELP", "ROW.INIT<" + witness, "unwrap", "LOAD"]) == "HELP")
    }

    @Test("Without own functions: the innermost function with a name")
    func nothingOwn() {
        #expect(culprit(["read", "worker", "main"]) == "read")
        #expect(culprit() == nil)
    }

    @Test("Without own functions a library's is chosen over those of the language and system that it calls")
    func libraryAlone() {
        let library = "$s4GRDB9StatementC4stepyyF"
        #expect(Demangler.swiftModule(of: library) == "GRDB")
        #expect(
            culprit(["__vdso_clock_gettime", "$sSa6appendyyxnF", library, "start_thread"])
                == Demangler.shortName(library)
        )
        #expect(culprit(["__vdso_clock_gettime", "$sSa6appendyyxnF", "start_thread"]) == "__vdso_clock_gettime")
    }

    @Test("Equal stacks are reported once with their number, the detection's first, at most five")
    func merged() {
        let taken = symbolicated([["A"], ["B"], ["C"], ["C"], ["D"], ["E"], ["F"], ["B"], ["B"]])
        #expect(taken.stacks.map { $0.frames[0].symbol } == ["A", "B", "C", "D", "E"])
        #expect(taken.stacks.map(\.count) == [1, 3, 2, 1, 1])
        #expect(taken.culprit?.function == "B" && taken.culprit?.stack == 1)
    }

    @Test(
        "The function that runs the loop is not to blame for its callouts, even if they are a library's",
        arguments: [
            "event_run_loop_is_calling_out_to_a_block", "event_run_loop_is_running_a_task",
            "event_run_loop_is_servicing_the_main_dispatch_queue",
        ]
    )
    func runsLoop(callout: String) {
        let taken = symbolicated([["read", "fetch", callout, "turn", "MAIN"]])
        #expect(taken.culprit?.function == "read" && taken.culpritFrames.map(\.symbol) == ["read", "fetch"])
        #expect(culprit(["read", "LOAD", callout, "turn", "MAIN"]) == "LOAD")
        #expect(culprit(["read", "turn", "MAIN"]) == "MAIN")
        // A loop within a loop: what the inner one calls.
        #expect(culprit(["read", "INNER", callout, "turn", "OUTER", callout, "turn", "MAIN"]) == "INNER")
    }

    @Test("A sample without the awaiting functions does not outvote those with them")
    func awaitingInMost() {
        let seen = ["fetch", "get", "await", "LOAD", "|", "event_run_loop_is_running_a_task", "turn", "MAIN"]
        let unseen = ["malloc", "fetch", "get", "event_run_loop_is_running_a_task", "turn", "MAIN"]
        #expect(symbolicated([seen, seen, unseen]).culprit?.function == "LOAD")
    }

    @Test("If nothing on the stack is own, the innermost own function that awaits it")
    func awaiting() throws {
        let taken = symbolicated([["read", "fetch", "await", "get", "LOAD", "HANDLE", "|", "drain", "MAIN"]])
        let culprit = try #require(taken.culprit)
        #expect(culprit.function == "LOAD" && culprit.isAwaiting == true && culprit.frame == 1)
        #expect(taken.culpritFrames.map(\.symbol) == ["LOAD", "HANDLE", "drain", "MAIN"])
    }

    @Test("A function that awaits different functions in turn is to blame for all of them")
    func awaitingLongest() {
        #expect(
            culprit(["read", "A", "await", "LOAD"], ["scan", "B", "await", "LOAD"], ["scan", "C", "await", "LOAD"])
                == "LOAD"
        )
        #expect(culprit(["read", "A", "await", "LOAD"], ["scan", "A", "await", "LOAD"]) == "A")
    }

    @Test("Each stack is reported with the time that it represents")
    func sampledTime() {
        let taken = symbolicated([["A"], ["B"], ["B"]], times: [100, 150, 250])
        #expect(taken.stacks.map(\.sampledNs) == [50_000_000, 150_000_000])
    }

    @Test("A sample represents the time since the previous one: many early ones do not outweigh a long end")
    func weighedByTime() {
        let stacks = [["SLEEP", "TURN"], ["SLEEP", "TURN"], ["SLEEP", "TURN"], ["MIXED", "TURN"]]
        #expect(symbolicated(stacks.map { [$0[0]] }, times: [0, 50, 100, 3_000]).culprit?.function == "MIXED")
        #expect(symbolicated(stacks, times: [0, 50, 100, 3_000]).culprit?.function == "TURN")
    }
}
