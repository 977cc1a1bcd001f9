import StallTestingXCTest
import XCTest

// Quoted by the documentation of StallTesting.

final class CheckoutCaseTests: StallFreeTestCase {
    func testPassesWithATotal() async {
        let total = await checkout(["tea", "milk"])
        XCTAssertEqual(total, 2)
    }
}

@MainActor private func checkout(_ basket: [String]) -> Int { basket.count }
