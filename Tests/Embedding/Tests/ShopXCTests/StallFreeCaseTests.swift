import Foundation
import StallTestingXCTest
import XCTest

// Tests whose name begins with `testStalls` must fail because of a stall, and all others must pass: scripts/embedding checks this.

final class StallFreeCaseTests: StallFreeTestCase {
    func testStallsTheMainActor() async { await block(milliseconds: 400) }

    @MainActor func testStallsOnTheMainActor() async { usleep(400_000) }

    func testStallsByATaskOfItsOwn() async { await Task { @MainActor in _ = usleep(400_000) }.value }

    func testStallsSynchronously() { usleep(400_000) }

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

@MainActor private func block(milliseconds: UInt32) { usleep(milliseconds * 1000) }
