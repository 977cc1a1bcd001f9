import StallTesting
import Testing

// Quoted by the documentation of StallTesting.

@Suite(.stallFree())
struct CheckoutTests {
    @Test func passesWithATotal() async {
        #expect(await checkout(["tea", "milk"]) == 2)
    }

    @Test(.stallFree(within: .milliseconds(250))) func passesWithAnEmptyBasket() async {
        let total = await expectNoStalls(within: .milliseconds(200)) { await checkout([]) }
        #expect(total == 0)
    }
}

@MainActor func checkout(_ basket: [String]) -> Int { basket.count }
