import Testing

@testable import RunLoopKit

/// The heap alone, against a sorted array.
struct TimerHeapTests {
    @Test(
        "R41: any sequence of adding, removing, moving and withdrawing leaves the heap in firing order",
        arguments: 0..<50
    )
    func matchesSortedArray(seed: Int) {
        var random = SmallRandom(seed: UInt64(seed))
        var heap = TimerHeap()
        var model: [Model] = []
        for step in 0..<300 {
            let date = MonotonicInstant(nanoseconds: UInt64.random(in: 0..<40, using: &random))
            switch model.isEmpty ? 0 : Int.random(in: 0..<5, using: &random) {
            case 0, 1:
                let timer = EventTimer(at: date, order: Int.random(in: 0..<3, using: &random)) { _ in }
                let ticket = heap.insert(timer, at: date)
                model.append(Model(timer: timer, ticket: ticket, date: date, sequence: step))
            case 2:
                let gone = model.remove(at: Int.random(in: model.indices, using: &random))
                #expect(heap.remove(gone.ticket) === gone.timer)
            case 3:
                let index = Int.random(in: model.indices, using: &random)
                model[index].date = date
                heap.place(model[index].ticket, at: date)
            default:
                let index = Int.random(in: model.indices, using: &random)
                model[index].date = nil
                heap.withdraw(model[index].ticket)
            }
            let now = MonotonicInstant(nanoseconds: UInt64.random(in: 0..<40, using: &random))
            var due: [EventTimer] = []
            heap.collectDue(at: now, into: &due)
            let expected = model.filter { $0.date.map { $0 <= now } ?? false }.sorted()
            #expect(due.map(ObjectIdentifier.init) == expected.map { ObjectIdentifier($0.timer) })
            #expect(heap.earliest == model.compactMap(\.date).min() ?? .distantFuture)
        }
    }

    private struct Model: Comparable {
        let timer: EventTimer
        let ticket: Int
        /// Nil while withdrawn.
        var date: MonotonicInstant?
        let sequence: Int

        static func == (left: Model, right: Model) -> Bool { left.timer === right.timer }

        static func < (left: Model, right: Model) -> Bool {
            let far = MonotonicInstant.distantFuture
            return (left.date ?? far, left.timer.order, left.sequence) < (
                right.date ?? far, right.timer.order, right.sequence
            )
        }
    }
}

/// Splitmix64: a failing seed can be run again.
struct SmallRandom: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }
}
