import Glibc
import LoopTestSupport
import Testing

/// What the loop asks of the kernel and of the allocator, in counts: they are the same on every machine, so they are gated.
///
/// The table is all there is to change when the engine gets better. Counts are for one operation in the steady state, as
/// Tests/Fixtures/LoopCounts makes them; what happens more seldom than once in twenty operations does not count.
@Suite(.timeLimit(.minutes(10)))
struct CountTests {
    /// At most so many.
    struct Bound: Sendable, CustomTestStringConvertible {
        let scenario: String
        /// System calls by the loop's thread.
        let calls: Double
        /// System calls by those who wake it.
        var wakes: Double = 0
        /// By the loop's thread, in an optimised build.
        let allocations: Double

        var testDescription: String { scenario }
    }

    static let bounds = [
        // A turn that has work asks the kernel at most once, and none allocates. Busy ones ask every eighth time, or when 50 µs are over:
        // on a machine that others use as well, that is sooner.
        Bound(scenario: "source-turn", calls: 0, allocations: 0),
        Bound(scenario: "source-turn-main", calls: 0.5, allocations: 0),
        Bound(scenario: "observed-turn", calls: 0, allocations: 0),
        Bound(scenario: "watched-turn", calls: 0, allocations: 0),
        Bound(scenario: "block", calls: 0.5, allocations: 0),
        Bound(scenario: "timer-fire", calls: 1, allocations: 0),
        Bound(scenario: "descriptor-delivery", calls: 1, allocations: 0),
        // A poll(2) each: events harvested together are looked at again (R36).
        Bound(scenario: "descriptor-delivery-of-100", calls: 1, allocations: 0),
        Bound(scenario: "polled-run", calls: 0, allocations: 0),
        Bound(scenario: "polled-run-main", calls: 1, allocations: 0),
        // Two of the calls and all allocations are libdispatch's: it writes and reads its eventfd, and keeps the block.
        Bound(scenario: "main-queue-drain", calls: 3, allocations: 2),
        // The timer and its callback.
        Bound(scenario: "one-shot", calls: 1, allocations: 2),
        // R25: a loop that is awake is woken for nothing, one that sleeps by one call, and wakes from one wait.
        Bound(scenario: "wake-up-by-itself", calls: 0, allocations: 0),
        Bound(scenario: "wake-up-awake", calls: 0, allocations: 0),
        Bound(scenario: "wake-up-asleep", calls: 1, wakes: 1, allocations: 0),
        Bound(scenario: "wake-up-asleep-main", calls: 1, wakes: 1, allocations: 0),
    ]

    @Test("R25: system calls and allocations for one operation stay within their bounds")
    func counts() throws {
        let counts = try Counts()
        for bound in CountTests.bounds {
            counts.expect("\(bound.scenario).calls", atMost: bound.calls)
            counts.expect("\(bound.scenario).wakes", atMost: bound.wakes)
            if counts.areOptimised { counts.expect("\(bound.scenario).allocations", atMost: bound.allocations) }
        }
    }
}

/// What one run of the fixture printed.
private struct Counts {
    private let values: [String: Double]

    init() throws {
        let run = try Fixture.run(command: "timeout 300 '\(Fixture.loopCounts())'")
        guard run.status == 0 else { throw Fixture.Failure(reason: run.lines.last ?? "no output") }
        let pairs = run.lines.map { $0.split(separator: " ") }.filter { $0.count == 2 }
        values = Dictionary(pairs.map { (String($0[0]), Double($0[1]) ?? .infinity) }) { first, _ in first }
    }

    /// Unoptimised code allocates here and there, and not the loop's.
    var areOptimised: Bool { values["optimised"] == 1 }

    func expect(_ name: String, atMost bound: Double) {
        // Under a sanitizer nothing can be said of allocations.
        guard let value = values[name] else {
            #expect(name.hasSuffix(".allocations"), "no count of \(name)")
            return
        }
        #expect(value <= bound + 0.05, "\(name)")
    }
}

extension Fixture {
    /// The program of an optimised build that the environment names, or the one beside the tests.
    static func loopCounts() throws -> String {
        if let path = unsafe getenv("LOOP_COUNTS") { return unsafe String(cString: path) }
        return try directory() + "/LoopCounts"
    }
}
