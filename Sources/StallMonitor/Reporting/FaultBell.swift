/// Tells of each fault once, until it is mended.
struct FaultBell {
    private var ringing: Set<StallMonitorError.Code> = []
    private let tell: @Sendable (StallMonitorError) -> Void

    init(_ tell: @escaping @Sendable (StallMonitorError) -> Void) {
        self.tell = tell
    }

    mutating func ring(_ error: StallMonitorError) {
        if ringing.insert(error.code).inserted { tell(error) }
    }

    mutating func mended(_ code: StallMonitorError.Code) {
        ringing.remove(code)
    }
}
