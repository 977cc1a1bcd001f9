public import Testing

/// Fails a test during which a watched loop was stalled for too long:
/// the main actor, an event loop, or all workers of a task pool.
///
///     @Test(.stallFree()) func checkout() async throws { … }
///
/// See `.stallFree(within:)`.
public struct StallFreeTrait: TestTrait, SuiteTrait, TestScoping {
    let limit: Duration

    /// On a suite the trait applies to each of its tests.
    public var isRecursive: Bool { true }

    /// Runs the test, or one case of it, and judges the stalls of that time. Called by Swift Testing.
    public func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable () async throws -> Void
    ) async throws {
        // This is also called for a suite, and for a test with arguments as a whole: each test case is judged in its own call.
        guard testCase != nil else { return try await function() }
        try await withoutStalls(within: limit, test.name, test.sourceLocation, function)
    }
}

extension Trait where Self == StallFreeTrait {
    /// Fails the test if it stalls a watched loop for longer than `limit`.
    ///
    /// The issue names the function that stalled, at its source line. Tests may run in parallel: a stall is reported to the test
    /// whose task or function was stalled. If neither can be determined, it is reported to each test with the trait that ran at that
    /// time, and the issue says so.
    ///
    /// Time in which a thread was ready to run and the machine gave it no processor does not count. A stall that is too long only
    /// because of such time is a warning, and so is one for which that time could not be measured. (With Swift before 6.3 a warning is
    /// a line on standard error.)
    ///
    /// - Parameter limit: At least 50 ms; a smaller limit counts as 50 ms. 100 ms by default.
    public static func stallFree(within limit: Duration = .milliseconds(100)) -> Self { Self(limit: limit) }
}

/// Records an issue if the work stalls a watched loop for longer than `limit`, as `.stallFree(within:)` does for a whole test.
///
///     let total = try await expectNoStalls { try await checkout(basket) }
///
/// The work runs in the caller's isolation. Any thread. For tests of Swift Testing and of `StallFreeTestCase`, which reports the stalls itself.
/// In other test cases of XCTest, Swift Testing drops the issue.
///
/// - Parameter limit: At least 50 ms; a smaller limit counts as 50 ms. 100 ms by default.
/// - Returns: The result of the work.
/// - Throws: The error of the work. The stalls are judged in this case, too.
@discardableResult
public nonisolated(nonsending) func expectNoStalls<Value, Failure: Error>(
    within limit: Duration = .milliseconds(100),
    function: String = #function,
    sourceLocation: SourceLocation = #_sourceLocation,
    _ work: nonisolated(nonsending) () async throws(Failure) -> Value
) async throws(Failure) -> Value {
    try await withoutStalls(within: limit, function, sourceLocation, work)
}

private nonisolated(nonsending) func withoutStalls<Value, Failure: Error>(
    within limit: Duration,
    _ name: String,
    _ location: SourceLocation,
    _ work: nonisolated(nonsending) () async throws(Failure) -> Value
) async throws(Failure) -> Value {
    let monitor = TestMonitor.shared
    let place = TestPlace(name: name, file: location.fileName, line: SourceLine(location))
    let number = monitor.begin(place, limit: limit)
    let result: Result<Value, Failure>
    do throws(Failure) { result = .success(try await work()) } catch { result = .failure(error) }
    for verdict in await monitor.end(number) { verdict.record(at: location) }
    return try result.get()
}

extension SourceLine {
    fileprivate init(_ location: SourceLocation) {
        #if compiler(>=6.3)
            self.init(file: location.filePath, number: location.line)
        #else
            self.init(file: location._filePath, number: location.line)
        #endif
    }
}
