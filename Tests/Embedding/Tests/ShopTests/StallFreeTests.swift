import Dispatch
import Foundation
import Testing

@testable import StallTesting

// Tests whose name begins with `stalls` must fail because of a stall, and
// all others must pass: scripts/embedding checks this. They run in parallel.

@Suite(.stallFree(within: .milliseconds(100)))
struct StallFreeTests {
    @Test func stallsTheMainActorComputing() async { await compute(for: .milliseconds(400)) }

    @Test @MainActor func stallsTheMainActorWaiting() { usleep(400_000) }

    @Test func stallsByATaskOfItsOwn() async {
        _ = await Task { @MainActor in usleep(400_000) }.value
    }

    /// Often enough that for a while no other test has a worker.
    @Test func stallsTheTaskPool() async {
        await withTaskGroup { group in
            for _ in 0..<4 * ProcessInfo.processInfo.activeProcessorCount { group.addTask { _ = usleep(400_000) } }
        }
    }

    @Test func stallsWithArguments() async { await MainActor.run { rest(milliseconds: 400) } }

    @Test(arguments: [10, 20]) func passesWithArguments(_ milliseconds: UInt32) async {
        await MainActor.run { rest(milliseconds: milliseconds) }
    }

    @Test func passesAwaiting() async throws { try await Task.sleep(for: .milliseconds(400)) }

    @Test @MainActor func passesAwaitingOnTheMainActor() async throws { try await Task.sleep(for: .milliseconds(400)) }

    @Test func passesComputingElsewhere() async { _ = spin(for: .milliseconds(300)) }

    /// Together they occupy all workers of a small machine's task pool, which none of them does alone.
    @Test(arguments: 1...4) func passesComputingBesideOthers(_: Int) async {
        await Task.yield()
        _ = spin(for: .milliseconds(300))
    }
}

@Suite struct ExpectNoStallsTests {
    @Test @MainActor func stallsInAPart() async {
        await expectNoStalls { usleep(400_000) }
    }

    @Test @MainActor func passesOutsideThePart() async {
        usleep(70_000)
        await expectNoStalls(within: .milliseconds(50)) { usleep(1000) }
    }

    @Test func passesWithinALongerLimit() async {
        await expectNoStalls(within: .seconds(10)) { await rest() }
    }
}

/// By the name of Swift Testing's function that calls tests, which is private: this test fails with a version in which it is another one.
@Test @MainActor func passesBesideATestThatIsJudged() async {
    // In a task of its own, as that of a test with the trait.
    let other = await Task.detached {
        TestMonitor.shared.begin(TestPlace(name: "other()", file: nil), limit: .milliseconds(100))
    }.value
    usleep(400_000)
    let verdicts = await Task.detached { await TestMonitor.shared.end(other) }.value
    #expect(verdicts.filter(\.isFailure).map(\.text) == [])
}

@MainActor func compute(for time: Duration) { _ = spin(for: time) }

@MainActor func rest(milliseconds: UInt32 = 150) { usleep(milliseconds * 1000) }

@inline(never) func spin(for time: Duration) -> Int {
    let end = ContinuousClock.now + time
    var turns = 0
    while ContinuousClock.now < end { turns += 1 }
    return turns
}
