import StallMonitor

@main struct Server {
    static func main() async throws {
        let monitor = StallMonitor.start()
        defer { monitor.stop() }
        try await serve()
    }
}

@MainActor func serve() async throws {
    try await Task.sleep(for: .milliseconds(100))
    print("made \(makeReceipts()) receipts")
}

/// Two seconds of the main actor's time: also a busy machine lets the monitor see such a stall.
@MainActor @inline(never) func makeReceipts() -> Int {
    let end = ContinuousClock.now + .seconds(2)
    var receipts = 0
    while ContinuousClock.now < end { receipts += 1 }
    return receipts
}
