/// Tells of each fault once, and once when it is mended.
struct FaultBell {
    private var ringing: [StallMonitorError.Code: StallMonitorError] = [:]
    private let handler: @Sendable (StallEvent) -> Void

    init(_ handler: @escaping @Sendable (StallEvent) -> Void) {
        self.handler = handler
    }

    mutating func ring(_ error: StallMonitorError) {
        guard ringing[error.code] == nil else { return }
        ringing[error.code] = error
        handler(.fault(error))
    }

    mutating func mended(_ code: StallMonitorError.Code) {
        if let error = ringing.removeValue(forKey: code) { handler(.mended(error)) }
    }

    /// Tells of it whether or not it was told before.
    func tell(_ error: StallMonitorError) {
        handler(.fault(error))
    }
}
