import RunLoopKit
import StackCapture
import StallReports
import Symbolication
import Testing

@testable import StallMonitor

/// Stacks are written innermost first, as the names of their functions; own functions in capitals.
@Suite("The culprit, out of samples")
struct CasebookTests {
    /// - Parameter times: when each was taken, milliseconds; one after the other unless given.
    private func casebook(_ stacks: [[String]], times: [Int]? = nil) -> Casebook {
        let names = stacks.flatMap { $0 }
        let samples = zip(stacks, times ?? Array(stacks.indices)).map { stack, time in
            StackSample(
                time: MonotonicInstant(nanoseconds: UInt64(1_000 + time) * 1_000_000),
                stack: CapturedStack(
                    frames: stack.map { _ in .init(address: 1, found: .unwindTable) },
                    method: .quiet,
                    cost: .init(heldNanoseconds: 0, unwindNanoseconds: 0, bytesCopied: 0)
                )
            )
        }
        return Casebook(
            samples,
            thread: .init(id: 1),
            clock: WallClockAnchor(),
            name: { addresses in
                (
                    zip(addresses, names).map {
                        SymbolicatedFrame(address: $0.address, moduleOffset: 0, symbol: $1, function: $1)
                    }, []
                )
            },
            isOwn: { frame, _ in frame.symbol == frame.symbol?.uppercased() }
        )
    }

    private func culprit(_ stacks: [String]...) -> String? { casebook(stacks).culprit?.function }

    @Test("The innermost own function of the only sample")
    func single() {
        #expect(culprit(["read", "PARSE", "HANDLE", "main"]) == "PARSE")
    }

    @Test("What comes and goes is not to blame, what stays is")
    func mostOften() {
        #expect(
            culprit(["memcpy", "ROW", "map", "LOAD", "main"], ["scan", "LOAD", "main"], ["ROW", "map", "LOAD"])
                == "LOAD"
        )
    }

    @Test("A function that is on every stack counts once a stack, though it calls itself")
    func recursion() {
        #expect(culprit(["WALK", "WALK", "WALK", "LOAD"], ["LOAD"]) == "LOAD")
    }

    @Test("A Decodable's own init, called by a decoder for each value, is not to blame; whoever called the decoder is")
    func standardWitness() {
        let witness = "$s6Server3RowVSeAASe4fromxs7Decoder_p_tKcfCTW"
        #expect(Demangler.demangle(witness).hasPrefix("protocol witness for Swift.Decodable.init"))
        #expect(culprit(["decode", "ROW.INIT", witness, "unwrap", "LOAD", "main"]) == "LOAD")
        #expect(culprit(["decode", "ROW.INIT", witness, "unwrap", "main"]) == "ROW.INIT")
    }

    @Test("Where nothing is own, the innermost function with a name")
    func nothingOwn() {
        #expect(culprit(["read", "worker", "main"]) == "read")
        #expect(culprit() == nil)
    }

    @Test("Equal stacks are told once with their number, the detection's first, at most five")
    func merged() {
        let book = casebook([["A"], ["B"], ["C"], ["C"], ["D"], ["E"], ["F"], ["B"], ["B"]])
        #expect(book.stacks.map { $0.frames[0].symbol } == ["A", "B", "C", "D", "E"])
        #expect(book.stacks.map(\.count) == [1, 3, 2, 1, 1])
        #expect(book.culprit?.function == "B" && book.culprit?.stack == 1)
    }

    @Test("A sample stands for the time since the one before: many early ones do not outweigh a long end")
    func weighedByTime() {
        let stacks = [["SLEEP", "TURN"], ["SLEEP", "TURN"], ["SLEEP", "TURN"], ["MIXED", "TURN"]]
        #expect(casebook(stacks.map { [$0[0]] }, times: [0, 50, 100, 3_000]).culprit?.function == "MIXED")
        #expect(casebook(stacks, times: [0, 50, 100, 3_000]).culprit?.function == "TURN")
    }
}
