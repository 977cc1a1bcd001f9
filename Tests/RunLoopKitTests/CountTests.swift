import Glibc
import LoopTestSupport
import Testing

/// The loop's system calls and allocations, as counts: they are the same on every machine, so they are tested.
///
/// Only this table has to change when the engine improves. Counts are for one operation in the steady state, as
/// produced by Tests/Fixtures/LoopCounts; what happens less often than once in twenty operations does not count.
@Suite(.timeLimit(.minutes(10)))
struct CountTests {
    /// The greatest permitted counts.
    struct Bound: Sendable, CustomTestStringConvertible {
        let scenario: String
        /// System calls by the loop's thread.
        let calls: Double
        /// System calls by the threads that wake it.
        var wakes: Double = 0
        /// Allocations by the loop's thread, in an optimised build.
        let allocations: Double

        var testDescription: String { scenario }
    }

    static let bounds = [
        // A turn with work polls the kernel at most once, and none allocates. Busy loops poll every eighth time, or
        // after 50 µs, which is sooner on a machine with other load.
        Bound(scenario: "source-turn", calls: 0, allocations: 0),
        Bound(scenario: "source-turn-main", calls: 0.5, allocations: 0),
        Bound(scenario: "observed-turn", calls: 0, allocations: 0),
        Bound(scenario: "watched-turn", calls: 0, allocations: 0),
        Bound(scenario: "block", calls: 0.5, allocations: 0),
        Bound(scenario: "timer-fire", calls: 1, allocations: 0),
        Bound(scenario: "descriptor-delivery", calls: 1, allocations: 0),
        // One poll(2) each: events harvested together are polled again (R36).
        Bound(scenario: "descriptor-delivery-of-100", calls: 1, allocations: 0),
        Bound(scenario: "polled-run", calls: 0, allocations: 0),
        Bound(scenario: "polled-run-main", calls: 1, allocations: 0),
        // Two of the calls and all allocations are libdispatch's: it writes and reads its eventfd and retains the
        // block.
        Bound(scenario: "main-queue-drain", calls: 3, allocations: 2),
        // The timer and its callback.
        Bound(scenario: "one-shot", calls: 1, allocations: 2),
        // R25: waking a loop that is awake costs nothing; waking a sleeping loop costs one call, and ends one wait.
        Bound(scenario: "wake-up-by-itself", calls: 0, allocations: 0),
        Bound(scenario: "wake-up-awake", calls: 0, allocations: 0),
        Bound(scenario: "wake-up-asleep", calls: 1, wakes: 1, allocations: 0),
        Bound(scenario: "wake-up-asleep-main", calls: 1, wakes: 1, allocations: 0),
        // Sending, waiting, receiving; the object that waits, and its completion.
        Bound(scenario: "port-request", calls: 3.5, wakes: 0.5, allocations: 2),
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

/// The output of one run of the fixture.
private struct Counts {
    private let values: [String: Double]

    init() throws {
        let run = try Fixture.run(command: "timeout 300 '\(Fixture.loopCounts())'")
        guard run.status == 0 else { throw Fixture.Failure(reason: run.lines.last ?? "no output") }
        let pairs = run.lines.map { $0.split(separator: " ") }.filter { $0.count == 2 }
        values = Dictionary(pairs.map { (String($0[0]), Double($0[1]) ?? .infinity) }) { first, _ in first }
    }

    /// Unoptimised code has allocations that are not the loop's.
    var areOptimised: Bool { values["optimised"] == 1 }

    func expect(_ name: String, atMost bound: Double) {
        // Under a sanitizer allocations cannot be counted.
        guard let value = values[name] else {
            #expect(name.hasSuffix(".allocations"), "no count of \(name)")
            return
        }
        #expect(value <= bound + 0.05, "\(name)")
    }
}

extension Fixture {
    /// The program of an optimised build named by the environment, or the one beside the tests.
    static func loopCounts() throws -> String {
        if let path = unsafe getenv("LOOP_COUNTS") { return unsafe String(cString: path) }
        return try directory() + "/LoopCounts"
    }
}
