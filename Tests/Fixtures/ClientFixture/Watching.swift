import Glibc
import RunLoopKit

/// Timers of both clocks, and the observable state of a loop.
@MainActor
func watchTimers() {
    let loop = EventRunLoop.main
    let trace = LoopTrace(of: loop, capacity: 64)
    let file = open("/dev/null", O_WRONLY | O_CLOEXEC)
    let log = LoopTrace(of: loop, sink: LoopTrace.jsonLines(to: file))
    let lenient = EventTimer(every: .milliseconds(10)) { _ in }
    lenient.tolerance = .milliseconds(2)
    lenient.nextFireDate = .now.advanced(by: .milliseconds(1))
    let alarm = EventTimer(atWallClock: .now.advanced(by: .milliseconds(5))) { _ in
        EventRunLoop.main.stop(mode: .default)
    }
    alarm.tolerance = .milliseconds(1)
    let never = EventTimer(atWallClock: .distantFuture, every: .seconds(86_400)) { _ in }
    for timer in [lenient, alarm, never] { loop.add(timer) }
    precondition(never.followsWallClock && never.nextWallClockFireDate == .distantFuture && !alarm.repeats)

    readSnapshot(of: loop)
    precondition(loop.run(for: .seconds(60)) == .stopped)
    log.stop()
    close(file)
    readTrace(trace)
    for timer in [lenient, alarm, never] { timer.invalidate() }
}

func readSnapshot(of loop: EventRunLoop) {
    let snapshot = loop.snapshot
    guard let mode = snapshot.modes.first(where: { $0.name == "default" }) else { fatalError("no default mode") }
    precondition(mode.timers.count == 3 && mode.timers[0].toleranceNanoseconds == 2_000_000 && mode.isCommon)
    precondition(snapshot.json.contains(#""loop":"main""#) && snapshot.description == "\(snapshot)")
    precondition(snapshot.currentMode == loop.currentMode?.name && snapshot.thread == loop.thread?.id)
    _ = (mode.sources, mode.descriptors, mode.observers, snapshot.queuedBlocks, snapshot.performRequests)
}

func readTrace(_ trace: LoopTrace) {
    trace.stop()
    guard let first = trace.transitions.first, let last = trace.transitions.last else { fatalError("no transitions") }
    precondition(first.to == .entry && last.to == .exit && first.time <= last.time && trace.lostCount == 0)
    precondition(first.json.hasPrefix("{") && first.description.contains(" default: ") && first.depth == 1)
}
