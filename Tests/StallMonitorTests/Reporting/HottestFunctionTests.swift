import StallReports
import Testing

@testable import StallMonitor

/// For a thread that computed, the function that its sentence names.
@Suite("The function in which a thread computed for longest")
struct HottestFunctionTests {
    /// A report whose stacks have these frames, innermost first, each with the milliseconds that it stands for.
    private func report(_ stacks: [(frames: [StallReport.Frame], milliseconds: Int64)]) -> StallReport {
        StallReport(
            kind: .blocked,
            state: .recovered,
            startedAt: .now(),
            detectedAt: .now(),
            endedAt: .now(),
            durationNs: 1,
            rule: .init(name: .blocked, tickNs: 1, ticks: 1),
            host: .current(),
            process: .current(),
            watched: .init(label: "main"),
            thread: .init(id: 1),
            stacks: stacks.map { frames, milliseconds in
                .init(
                    role: .stalled,
                    thread: .init(id: 1),
                    capturedAt: .now(),
                    method: .signal,
                    frames: frames,
                    sampledNs: milliseconds * 1_000_000
                )
            },
            fingerprint: .make(kind: .blocked, frames: [], modules: [])
        )
    }

    private let next = StallReport.Frame(address: 1, function: "IndexingIterator.next()")
    private let unnamed = StallReport.Frame(address: 2, own: true)
    private let receipts = StallReport.Frame(address: 3, function: "makeReceipts()", own: true)

    @Test("The innermost function with a name, by time and not by the number of stacks")
    func named() {
        #expect(
            report([([next, receipts], 10), ([next, receipts], 10), ([receipts], 50)]).stacks.hottestFunction
                == "makeReceipts()"
        )
        #expect(
            report([([next, receipts], 60), ([receipts], 50)]).stacks.hottestFunction == "IndexingIterator.next()"
        )
        #expect(report([([next], 60)]).stacks.hottestFunction == "IndexingIterator.next()")
    }

    @Test("No name without names of own code, whatever the runtime's functions are called")
    func withoutSymbols() {
        #expect(report([([next, unnamed], 60), ([unnamed], 20)]).stacks.hottestFunction == nil)
        #expect(report([([unnamed], 60), ([next], 20)]).stacks.hottestFunction == nil)
        #expect(report([]).stacks.hottestFunction == nil)
    }
}
