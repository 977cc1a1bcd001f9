import Synchronization
public import Testing

/// One test at a time may use the capture signal, which belongs to the process: tests of all targets run in one
/// process. A test waits until no other test uses it; waiting blocks no thread.
public struct CaptureSignalTurn: SuiteTrait, TestTrait, TestScoping {
    private static let isTaken = Mutex(false)

    public var isRecursive: Bool { true }

    public func provideScope(
        for test: Test,
        testCase: Test.Case?,
        performing function: @Sendable () async throws -> Void
    ) async throws {
        guard testCase != nil else { return try await function() }
        while !Self.isTaken.withLock({ taken in
            defer { taken = true }
            return !taken
        }) {
            try await Task.sleep(for: .milliseconds(5))
        }
        defer { Self.isTaken.withLock { $0 = false } }
        try await function()
    }
}

extension Trait where Self == CaptureSignalTurn {
    /// The test uses the capture signal.
    public static var captureSignal: Self { CaptureSignalTurn() }
}
