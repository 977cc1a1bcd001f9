import Glibc
import StallTesting
import Testing

/// For the gate, which judges a whole suite: `stall-monitor gate run -- swift test --filter …`. It judges nothing that was watched for
/// less than a second.
struct GateTests {
    /// Within its own limit, and far above what the gate allows without a budget.
    @Test(.stallFree(within: .seconds(60))) func passesWithinItsOwnLimit() async {
        await takeStock()
    }

    @Test(.stallFree(within: .seconds(60))) func passesAndStallsNothing() async throws {
        try await Task.sleep(for: .milliseconds(1500))
    }
}

@MainActor private func takeStock() { usleep(1_500_000) }
