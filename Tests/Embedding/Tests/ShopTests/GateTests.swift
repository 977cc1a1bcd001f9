import Glibc
import StallTesting
import Testing

/// For the gate, which judges the whole suite: `stall-monitor gate run -- swift test --filter …`.
struct GateTests {
    /// Within its own limit, and far over what the gate allows without a budget.
    @Test(.stallFree(within: .seconds(60))) func passesWithinItsOwnLimit() async {
        await takeStock()
    }
}

@MainActor private func takeStock() { usleep(800_000) }
