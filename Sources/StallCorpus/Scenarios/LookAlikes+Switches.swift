import RunLoopKit
import StallMonitor
import StallReports

extension Scenario {
    /// The server has declared that nothing must be reported.
    static let switchLookAlikes: [Scenario] = [
        .lookAlike("expected-slow", .pauses, on: .mainLoop) { stage in
            stage.run {
                MonitorSwitches.expectingSlow(stage.monitor, .seconds(5)) {
                    keep(sleepInHandler(.milliseconds(600)))
                }
            }
        },
        .lookAlike("expected-slow-worker", .pauses, on: .worker) { stage in
            stage.run {
                MonitorSwitches.expectingSlow(stage.monitor, .seconds(5)) {
                    keep(sleepInHandler(.milliseconds(600)))
                }
            }
        },
        .lookAlike("paused-monitor", .pauses, on: .worker) { stage in
            MonitorSwitches.pause(stage.monitor)
            stage.rest(.milliseconds(100))
            stage.run { keep(sleepInHandler(.milliseconds(700))) }
            MonitorSwitches.resume(stage.monitor)
            stage.rest(.milliseconds(300))
        },
        .stall("stall-after-resume", .pauses, on: .worker, [.blocked], culprit: "sleepInHandler") { stage in
            MonitorSwitches.pause(stage.monitor)
            stage.rest(.milliseconds(300))
            MonitorSwitches.resume(stage.monitor)
            stage.rest(.milliseconds(300))
            stage.stall { sleepInHandler(Stage.usualLength) }
        },
        .lookAlike("start-up", .pauses, on: .mainLoop, needs: .startupGrace) { stage in
            stage.run { keep(sleepInHandler(.milliseconds(900))) }
        },
        .stall(
            "stall-after-start-up",
            .pauses,
            on: .mainLoop,
            [.blocked],
            culprit: "sleepInHandler",
            needs: .startupGrace
        ) { stage in
            stage.rest(.milliseconds(2_200))
            stage.stall { sleepInHandler(Stage.usualLength) }
        },
        .lookAlike("cancelled-watch", .pauses, on: .worker) { stage in
            stage.watch?.cancel()
            stage.rest(.milliseconds(200))
            stage.run { keep(sleepInHandler(.milliseconds(600))) }
        },
        .lookAlike("stopped-monitor", .pauses, on: .mainLoop) { stage in
            stage.monitor.stop()
            stage.run { keep(sleepInHandler(.milliseconds(600))) }
        },
    ]
}

/// The ways in which a server declares that a time does not count. Defined in this file only, so that the scenarios do not depend
/// on the names of the public interface.
enum MonitorSwitches {
    /// The first two seconds may be slow.
    static func allowStart(_ configuration: inout StallMonitor.Configuration) {
        configuration.startupGrace = .seconds(2)
    }

    static func expectingSlow(_ monitor: StallMonitor, _ limit: Duration, _ body: () -> Void) {
        monitor.expectSlow(for: limit) { body() }
    }

    static func pause(_ monitor: StallMonitor) { monitor.pause() }

    static func resume(_ monitor: StallMonitor) { monitor.resume() }
}
