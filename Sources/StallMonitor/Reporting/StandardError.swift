import Glibc

/// Where faults go when the process has no handler for them.
enum StandardError {
    @Sendable static func tell(_ event: StallEvent) {
        let line: String
        switch event {
        case .fault(let error): line = "stall-monitor: \(error)\n"
        case .mended(let error): line = "stall-monitor: This is over: \(error)\n"
        default: return
        }
        _ = unsafe line.utf8.withContiguousStorageIfAvailable { unsafe write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
