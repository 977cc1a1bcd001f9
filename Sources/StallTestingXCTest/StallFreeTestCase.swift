import Foundation
import StallTesting
public import XCTest

/// The base class of XCTest's test cases that fail if they stall a watched loop for too long: the main actor, an event loop, or
/// all workers of a task pool.
///
///     final class CheckoutTests: StallFreeTestCase {
///         func testTotal() async throws { … }
///     }
///
/// A failure names the function that stalled, at its source line. The time of `setUp()` and `tearDown()` counts as the test's. For
/// tests of Swift Testing there is the trait `.stallFree()` of `StallTesting`.
///
/// XCTest runs synchronous test methods on the main thread. While one runs, the main thread's loop does not turn: what the method
/// itself does counts as a stall, too. A wait for an expectation does not. On Linux, XCTest aborts at a synchronous test method with
/// `@MainActor`: make it `async`.
open class StallFreeTestCase: XCTestCase {
    /// A longer stall fails a test. At least 50 ms; a smaller limit counts as 50 ms. 100 ms by default. Read before each test.
    open var stallLimit: Duration { .milliseconds(100) }

    /// Runs the test and judges the stalls of that time. Called by XCTest.
    open override func invokeTest() {
        Self.watchOnce
        Self.rest()
        let number = TestMonitor.shared.begin(
            TestPlace(name: methodName + "()", file: nil, isCase: true),
            limit: stallLimit
        )
        super.invokeTest()
        for verdict in TestMonitor.shared.finish(number, resting: Self.rest) { record(verdict) }
    }

    /// Before the first test: its own stall is to be seen, too.
    private static let watchOnce: Void = TestMonitor.shared.awaitMainLoop(resting: rest)

    /// Lets the main thread's loop rest, so that a stall of this test neither begins in the one before nor lasts beyond its end.
    private static func rest() {
        _ = RunLoop.current.run(mode: .default, before: Date(timeIntervalSinceNow: 0.001))
    }

    /// A test's name is `Class.method`.
    private var methodName: String { name.split(separator: ".").last.map(String.init) ?? name }

    private func record(_ verdict: StallVerdict) {
        guard verdict.isFailure else { return TestMonitor.say(verdict.text) }
        let place = verdict.place
        recordFailure(
            withDescription: verdict.text,
            inFile: place?.file ?? "<unknown>",
            atLine: place?.number ?? 0,
            expected: true
        )
    }
}
