import Foundation
import StallTestingXCTest
import Testing
import XCTest

@testable import StallTesting

// Tests whose name begins with `testStalls` must fail because of a stall, and all others must pass: scripts/embedding checks this.

final class StallFreeCaseTests: StallFreeTestCase {
    func testStallsTheMainActor() async { await block(milliseconds: 400) }

    @MainActor func testStallsOnTheMainActor() async { usleep(400_000) }

    func testStallsByATaskOfItsOwn() async { await Task { @MainActor in _ = usleep(400_000) }.value }

    func testStallsSynchronously() { usleep(400_000) }

    func testStallsInAPart() async { await expectNoStalls { await block(milliseconds: 400) } }

    func testPassesAwaiting() async throws { try await Task.sleep(for: .milliseconds(400)) }

    func testPassesWithinTheLimit() async { await block(milliseconds: 20) }

    func testPassesBesideTheMainActor() async { usleep(400_000) }

    func testPassesWaitingForAnExpectation() {
        let done = expectation(description: "done")
        DispatchQueue.global().asyncAfter(deadline: .now() + 0.4) { done.fulfill() }
        wait(for: [done], timeout: 60)
    }
}

final class PatientCaseTests: StallFreeTestCase {
    override var stallLimit: Duration { .seconds(10) }

    func testPassesWithinALongerLimit() async { await block(milliseconds: 400) }
}

/// How `StallFreeTestCase` judges a test, called by a test.
final class JudgedCaseTests: XCTestCase {
    func testPassesIfAStallIsOverWhenItIsJudged() {
        let rest = { _ = RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: 0.001)) }
        let monitor = TestMonitor.shared
        var verdicts: [StallVerdict] = []
        monitor.awaitMainLoop(resting: rest)
        // The monitor may answer too late.
        for _ in 0..<5 where verdicts.isEmpty {
            rest()
            let number = monitor.begin(TestPlace(name: "work()", file: nil), limit: .milliseconds(100))
            usleep(400_000)
            verdicts = monitor.finish(number, resting: rest)
        }
        XCTAssertFalse(verdicts.isEmpty)
        XCTAssert(verdicts.allSatisfy { $0.stall.endedAt != nil }, "the stall lasts until the monitor answers")
    }
}

@MainActor private func block(milliseconds: UInt32) { usleep(milliseconds * 1000) }
