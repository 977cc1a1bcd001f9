import Glibc

/// Tells of each fault once, and once when it is mended.
struct FaultNotifier {
    private var told: [StallMonitorError.Code: StallMonitorError] = [:]
    private let handler: @Sendable (StallEvent) -> Void

    init(_ handler: @escaping @Sendable (StallEvent) -> Void) {
        self.handler = handler
    }

    mutating func notify(_ error: StallMonitorError) {
        guard told[error.code] == nil else { return }
        told[error.code] = error
        handler(.fault(error))
    }

    mutating func mended(_ code: StallMonitorError.Code) {
        if let error = told.removeValue(forKey: code) { handler(.mended(error)) }
    }

    /// Tells of it whether or not it was told before.
    func tell(_ error: StallMonitorError) {
        handler(.fault(error))
    }
}

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
