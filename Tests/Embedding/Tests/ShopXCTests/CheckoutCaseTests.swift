// Quoted by the documentation of StallTesting.

import StallTestingXCTest
import XCTest

final class CheckoutCaseTests: StallFreeTestCase {
    func testPassesWithATotal() async {
        let total = await checkout(["tea", "milk"])
        XCTAssertEqual(total, 2)
    }
}

@MainActor private func checkout(_ basket: [String]) -> Int { basket.count }
