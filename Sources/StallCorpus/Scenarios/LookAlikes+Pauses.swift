import CStallCorpus
import Glibc
import RunLoopKit
import StallMonitor
import StallReports

extension Scenario {
    /// The whole process was paused, or the clocks jumped; the loop did nothing wrong.
    static let pauseLookAlikes: [Scenario] = [
        .lookAlike("stopped-idle", .pauses) { stage in
            try runShell(stopAndContinue)
            stage.rest(.milliseconds(500))
        },
        .lookAlike("stopped-in-turn", .pauses, on: .worker) { stage in
            try stage.inLightTurns { try runShell(stopAndContinue) }
        },
        .lookAlike("stopped-in-turn-main-actor", .pauses, on: .mainActor) { stage in
            try stage.inLightTurns { try runShell(stopAndContinue) }
        },
        .lookAlike("debugger", .pauses, on: .worker) { stage in
            guard unsafe access("/usr/bin/gdb", X_OK) == 0 else { throw SkippedScenario("no gdb here") }
            try stage.inLightTurns {
                let attach = "gdb -batch -nx -p \(getpid()) -ex 'shell sleep 1' -ex detach"
                try runShell("exec timeout -s KILL 60 \(attach) >/dev/null 2>&1 </dev/null")
            }
        },
        .lookAlike("frozen", .pauses, on: .worker) { stage in
            let group = try ControlGroup.freezable()
            defer { group.leave() }
            try group.enter()
            let freeze = group.path + "/cgroup.freeze"
            try stage.inLightTurns {
                // The shell leaves the group first, or it would freeze itself.
                let home = String(
                    group.path.prefix { _ in true }.split(separator: "/").dropLast().joined(separator: "/")
                )
                let leave = "echo $$ > /\(home)/cgroup.procs"
                try runShell("\(leave); echo 1 > \(freeze); sleep 1; echo 0 > \(freeze)")
            }
        },
        .lookAlike("forked-child", .pauses) { stage in
            // The child stalls. It has no monitor, and the parent's loop rests.
            try stage.inLightTurns {
                let child = try forkSleeping(.seconds(1))
                var status: Int32 = 0
                unsafe waitpid(child, &status, 0)
            }
        },
        .lookAlike("clock-set-back", .pauses, on: .worker, needs: .fakeClock) { stage in
            try stage.inLightTurns {
                try setFakeClock("-3600")
                stage.rest(.milliseconds(400))
            }
        },
        .lookAlike("clock-set-forward", .pauses, needs: .fakeClock) { stage in
            try stage.inLightTurns {
                try setFakeClock("+86400")
                stage.rest(.milliseconds(400))
            }
        },
        .stall(
            "clock-set-in-mid-stall",
            .pauses,
            on: .worker,
            [.blocked],
            culprit: "sleepInHandler",
            bounds: .none,
            needs: .fakeClock
        ) { stage in
            stage.afterwards(.milliseconds(200)) { try? setFakeClock("+7200") }
            stage.stall { sleepInHandler(Stage.usualLength) }
            try setFakeClock("+0")
        },
        .stall("stall-after-stop", .pauses, on: .worker, [.blocked], culprit: "sleepInHandler") { stage in
            // A stall after a pause is detected again.
            try runShell(stopAndContinue)
            stage.rest(.milliseconds(400))
            stage.stall { sleepInHandler(Stage.usualLength) }
        },
    ]

    private static let stopAndContinue = "kill -STOP $PPID; sleep 1; kill -CONT $PPID"
}

extension Stage {
    /// Keeps the loop lightly busy while `body` runs.
    func inLightTurns(_ body: () throws -> Void) throws {
        let timer = EventTimer(every: .milliseconds(25)) { _ in keep(sleepInHandler(.milliseconds(5))) }
        loop.add(timer, to: .common)
        loop.wakeUp()
        rest(.milliseconds(200))
        defer { timer.invalidate() }
        try body()
        rest(.milliseconds(400))
    }
}

/// Forks a child that sleeps and exits. It runs no Swift code: locks that other threads held stay locked in the child.
private func forkSleeping(_ duration: Duration) throws -> pid_t {
    let microseconds = UInt32(duration / .microseconds(1))
    let child = corpus_fork()
    if child == 0 {
        usleep(microseconds)
        _exit(0)
    }
    guard child > 0 else { throw SkippedScenario("fork(2) failed (errno \(errno))") }
    return child
}

/// Sets the clock that libfaketime shows, in seconds relative to the true time.
private func setFakeClock(_ offset: String) throws {
    guard let path = unsafe getenv("FAKETIME_TIMESTAMP_FILE") else { throw SkippedScenario("no libfaketime here") }
    guard writeFile(offset + "\n", to: unsafe String(cString: path), creating: true) else {
        throw SkippedScenario("the clock's file cannot be written")
    }
}

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
