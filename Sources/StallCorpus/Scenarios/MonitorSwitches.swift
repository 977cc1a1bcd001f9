import StallMonitor

/// The ways in which a server says that a time does not count. One file, so that the scenarios do not follow the interface's wording.
enum MonitorSwitches {
    /// Slowness is expected in the first two seconds.
    static func allowStart(_ configuration: inout StallMonitor.Configuration) {
        configuration.startupGrace = .seconds(2)
    }

    static func expectingSlow(_ monitor: StallMonitor, _ limit: Duration, _ body: () -> Void) {
        monitor.expectSlow(for: limit) { body() }
    }

    static func pause(_ monitor: StallMonitor) { monitor.pause() }

    static func resume(_ monitor: StallMonitor) { monitor.resume() }
}
