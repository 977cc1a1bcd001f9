public import Testing

/// Fails a test in whose time a watched thing stood still for too long: the main actor, an event loop, or all workers of a task pool.
///
///     @Test(.stallFree()) func checkout() async throws { … }
///
/// See `.stallFree(within:)`.
public struct StallFreeTrait: TestTrait, SuiteTrait, TestScoping {
    let limit: Duration

    /// On a suite it holds for each of its tests.
    public var isRecursive: Bool { true }

    /// Runs the test, or one case of it, and judges what stood still meanwhile. Called by Swift Testing.
    public func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable () async throws -> Void
    ) async throws {
        // Of a suite, and of a test with arguments as a whole: each case comes by itself.
        guard testCase != nil else { return try await function() }
        try await withoutStalls(within: limit, TestPlace(name: test.name, location: test.sourceLocation), function)
    }
}

extension Trait where Self == StallFreeTrait {
    /// Nothing may stand still for longer than `limit` because of the test.
    ///
    /// The issue names the function that stood still, at its source line. Tests may run in parallel: a stall is told to the test whose task or
    /// function stood; where neither can be seen, to each test that ran meanwhile, and the issue says so. Time in which a thread could have run
    /// and the machine gave it no processor does not count; a stall that is too long only by such time is a warning (with Swift 6.3; on
    /// standard error before).
    ///
    /// - Parameter limit: 50 ms at least; less counts as that. 100 ms unless given.
    public static func stallFree(within limit: Duration = .milliseconds(100)) -> Self { Self(limit: limit) }
}

/// Records an issue if something stands still for longer than `limit` because of the work, as `.stallFree(within:)` does for a
/// whole test.
///
///     let total = try await expectNoStalls { try await checkout(basket) }
///
/// The work runs where the caller runs. Any thread.
///
/// - Parameter limit: 50 ms at least; less counts as that. 100 ms unless given.
/// - Returns: what the work returns.
/// - Throws: what the work throws, judged all the same.
@discardableResult
public nonisolated(nonsending) func expectNoStalls<Value, Failure: Error>(
    within limit: Duration = .milliseconds(100),
    function: String = #function,
    sourceLocation: SourceLocation = #_sourceLocation,
    _ work: nonisolated(nonsending) () async throws(Failure) -> Value
) async throws(Failure) -> Value {
    try await withoutStalls(within: limit, TestPlace(name: function, location: sourceLocation), work)
}

private nonisolated(nonsending) func withoutStalls<Value, Failure: Error>(
    within limit: Duration,
    _ place: TestPlace,
    _ work: nonisolated(nonsending) () async throws(Failure) -> Value
) async throws(Failure) -> Value {
    let monitor = TestMonitor.shared
    let number = monitor.begin(place, limit: limit)
    let result: Result<Value, Failure>
    do throws(Failure) { result = .success(try await work()) } catch { result = .failure(error) }
    for verdict in await monitor.end(number) { verdict.record(at: place.location) }
    return try result.get()
}
