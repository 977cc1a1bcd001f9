import StallReports
import TestSupport
import Testing

@testable import StallMonitor

/// The same fault, however few samples there are and whenever they were taken.
@Suite("The culprit, for any samples")
struct CulpritSearchTests {
    private static let runs = 50

    private struct Outcome {
        var right = 0
        var fingerprints: [Fingerprint: Int] = [:]
        var culprits: [String: Int] = [:]

        var equal: Int { fingerprints.values.max() ?? 0 }
    }

    private func play(_ fault: SimulatedFault, _ seed: UInt64) -> Outcome {
        var outcome = Outcome()
        for run in 0..<Self.runs {
            var random = SplitMix64(seed: seed &+ UInt64(run) &* 7919)
            let book = fault.book(samples: .random(in: 3...12, using: &random), &random)
            let culprit = book.culprit?.symbol ?? "nobody"
            if culprit == fault.culprit { outcome.right += 1 }
            outcome.culprits[culprit, default: 0] += 1
            let name = Fingerprint.make(kind: .blocked, fault: book.culpritFrames, modules: [], executable: nil)
            outcome.fingerprints[name, default: 0] += 1
        }
        return outcome
    }

    @Test(
        "Thirty kinds of faults, each seen fifty times through three to twelve samples",
        arguments: [1, 2] as [UInt64]
    )
    func simulation(seed: UInt64) {
        let outcomes = SimulatedFault.all.map { ($0, play($0, seed)) }
        let total = outcomes.count * Self.runs
        let (equal, right) = (outcomes.reduce(0) { $0 + $1.1.equal }, outcomes.reduce(0) { $0 + $1.1.right })
        for (fault, outcome) in outcomes where outcome.equal < Self.runs || outcome.right < Self.runs {
            print("\(fault.name): equal \(outcome.equal), right \(outcome.right) of \(Self.runs): \(outcome.culprits)")
        }
        print(
            "seed \(seed): \(outcomes.count) faults: fingerprint equal in \(equal), culprit right in \(right) of \(total)"
        )
        #expect(outcomes.count >= 30)
        #expect(equal * 100 >= total * 99, "seed \(seed): \(equal) of \(total)")
        #expect(right * 100 >= total * 98, "seed \(seed): \(right) of \(total)")
    }

    /// - Parameter symbols: innermost first. Those of scripts and those in capitals are own, but none of a Python library.
    private func culprit(_ symbols: [String], loop: Int?) -> (symbol: String?, fault: [String]) {
        let frames = symbols.map { symbol in
            let isOwn = symbol.contains(".py") && !symbol.contains("/lib/python3.") || symbol == symbol.uppercased()
            return StallReport.Frame(address: 1, function: symbol, symbol: symbol, own: isOwn)
        }
        var stack = StallReport.Stack(thread: .init(id: 1), capturedAt: .now(), frames: frames)
        stack.loop = loop
        let search = CulpritSearch([.init(stack: stack, span: .seconds(1))])
        return (search.map { stack.frame($0.candidate).symbol } ?? nil, search?.frames.compactMap(\.symbol) ?? [])
    }

    /// A worker's functions, innermost first, with how long they were seen. Its registers are its own.
    private func worker(_ id: Int32, _ symbols: [String], _ milliseconds: Int) -> CulpritSearch.Sample {
        let frames = symbols.map { StallReport.Frame(address: 1, function: $0, symbol: $0, own: true) }
        let stack = StallReport.Stack(thread: .init(id: id), capturedAt: .now(), frames: frames)
        return .init(stack: stack, span: .milliseconds(milliseconds), states: symbols.map { _ in UInt64(id) })
    }

    @Test(
        "Of a pool's workers it is the function of most, though one of them was seen less often, and whatever their registers"
    )
    func workers() throws {
        let three = [70, 100, 100].enumerated().map { worker(Int32($0), ["SLEEP", "JOB", "MAIN"], $1) }
        let search = try #require(CulpritSearch([worker(9, ["COMPUTE", "JOB", "MAIN"], 100)] + three))
        #expect(search.frames.map(\.symbol) == ["SLEEP", "JOB", "MAIN"])
        // Half of them are not most.
        let halves = [worker(8, ["COMPUTE", "JOB", "MAIN"], 100), worker(9, ["SLEEP", "JOB", "MAIN"], 100)]
        #expect(CulpritSearch(halves)?.frames.map(\.symbol) == ["JOB", "MAIN"])
    }

    /// As they are between two functions of a script that is run with `-X perf`.
    private let interpreter = ["py_trampoline_evaluator", "PyObject_Vectorcall", "_PyEval_EvalFrameDefault"]

    @Test("A Python function is to blame although it is called from where the script calls its wait")
    func pythonCallee() {
        let (handler, loop) = ("py::on_order:/srv/shop.py", "py::serve:/srv/shop.py")
        let callers = interpreter + [loop] + interpreter + ["py::<module>:/srv/shop.py", "main"]
        let sleep = ["clock_nanosleep", "time_sleep", "_PyEval_EvalFrameDefault"]
        let found = culprit(sleep + [handler] + callers, loop: 3)
        #expect(found.symbol == handler && found.fault.first == handler && found.fault.contains(loop))
        // The script itself calls what waits, beside its loop's wait.
        let direct = ["clock_nanosleep", "time_sleep", "cfunction_vectorcall_O", "PyObject_Vectorcall"]
        #expect(culprit(direct + ["_PyEval_EvalFrameDefault", loop] + interpreter + ["main"], loop: 2).symbol == loop)
    }

    @Test("What runs a Python library's loop is not to blame for what it calls, nor is a function in another language")
    func loopOfALibrary() {
        let library = "py::_run:/usr/lib/python3.12/asyncio/events.py"
        let callers = interpreter + ["py::<module>:/srv/shop.py", "main"]
        #expect(culprit(["clock_nanosleep", "time_sleep", library] + callers, loop: 2).symbol == "clock_nanosleep")
        #expect(culprit(["clock_nanosleep", "sleep", "SERVE", "MAIN"], loop: 2).symbol == "clock_nanosleep")
    }
}
