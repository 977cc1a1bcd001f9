import Glibc

/// Where faults go when the process has no handler for them.
enum StandardError {
    @Sendable static func tell(_ event: StallEvent) {
        guard case .fault(let error) = event else { return }
        let line = "stall-monitor: \(error)\n"
        _ = unsafe line.utf8.withContiguousStorageIfAvailable { unsafe write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
