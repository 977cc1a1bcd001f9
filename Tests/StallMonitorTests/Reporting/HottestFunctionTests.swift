import StallReports
import Testing

@testable import StallMonitor

/// For a thread that computed, the function that its sentence names.
@Suite("The function in which a thread computed for longest")
struct HottestFunctionTests {
    /// Of stacks with these frames, innermost first, each with the milliseconds that it stands for.
    private func hottest(_ stacks: [(frames: [StallReport.Frame], milliseconds: Int64)]) -> String? {
        stacks.map { frames, milliseconds in
            StallReport.Stack(
                role: .stalled,
                thread: .init(id: 1),
                capturedAt: .now(),
                method: .signal,
                frames: frames,
                sampledNs: milliseconds * 1_000_000
            )
        }
        .hottestFunction
    }

    private let next = StallReport.Frame(address: 1, function: "IndexingIterator.next()")
    private let unnamed = StallReport.Frame(address: 2, own: true)
    private let receipts = StallReport.Frame(address: 3, function: "makeReceipts()", own: true)

    @Test("The innermost function with a name, by time and not by the number of stacks")
    func named() {
        #expect(hottest([([next, receipts], 10), ([next, receipts], 10), ([receipts], 50)]) == "makeReceipts()")
        #expect(hottest([([next, receipts], 60), ([receipts], 50)]) == "IndexingIterator.next()")
        #expect(hottest([([next], 60)]) == "IndexingIterator.next()")
    }

    @Test("No name without names of own code, whatever the runtime's functions are called")
    func withoutSymbols() {
        #expect(hottest([([next, unnamed], 60), ([unnamed], 20)]) == nil)
        #expect(hottest([([unnamed], 60), ([next], 20)]) == nil)
        #expect(hottest([]) == nil)
    }
}
