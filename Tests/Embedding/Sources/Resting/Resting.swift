import StallMonitor

/// A server at rest with the monitor.
@main struct Resting {
    static func main() async throws {
        let monitor = StallMonitor.start()
        defer { monitor.stop() }
        print("ready")
        try await Task.sleep(for: .seconds(600))
    }
}
