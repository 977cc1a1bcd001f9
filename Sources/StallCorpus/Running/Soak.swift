import Glibc
import RunLoopKit
import StallMonitor
import StallReports
import Synchronization

/// Loops that rest, or do a little, for a long time, on a machine that has more to do than it can: nothing may be reported of them
/// but turns that really were long.
package struct Soak: Sendable {
    let seconds: Int

    private static let prefix = "soak-"

    package init(seconds: Int) { self.seconds = seconds }

    /// As a child's environment calls it.
    init?(named name: String) {
        guard name.hasPrefix(Self.prefix), let seconds = Int(name.dropFirst(Self.prefix.count)) else { return nil }
        self.init(seconds: seconds)
    }

    var name: String { Self.prefix + "\(seconds)" }

    /// In the child's process: the main loop and two workers do a millisecond of work now and then, two more rest.
    func play(in directory: String) -> Int32 {
        let monitor = StallMonitor.start(.init(directory: directory + "/reports", service: .init(name: "soak")))
        let busyTimes = Mutex<[BusyTimes]>([])
        do {
            let workers = try (0..<4).map { try WorkerThread(name: "soak-\($0)") }
            for worker in workers { try monitor.watch(worker.loop, label: worker.name) }
            let lightlyBusy = [(EventRunLoop.main, "main")] + workers.prefix(2).map { ($0.loop, $0.name) }
            for (loop, label) in lightlyBusy {
                busyTimes.withLock { $0.append(BusyTimes(of: loop, label)) }
                loop.add(EventTimer(every: .milliseconds(37)) { _ in keep(handleShortEvent()) }, to: .common)
                loop.wakeUp()
            }
            sleepFor(.seconds(seconds))
            monitor.stop()
            for worker in workers { worker.stop() }
        } catch {
            Receipt(failure: "\(error)").write(in: directory)
            return 1
        }
        Receipt(slowTurns: busyTimes.withLock { $0 }.flatMap(\.long)).write(in: directory)
        return 0
    }
}

/// Notes for how long a loop is away from its rest, by its own activities.
private final class BusyTimes: Sendable {
    private struct State {
        var since: Measurement?
        var long: [Receipt.Span] = []
    }

    private let state = Mutex(State())

    init(of loop: EventRunLoop, _ label: String) {
        let leaving = LoopObserver(activities: .afterWaiting, order: .min) { [state = Weak(self)] _, _ in
            state.value?.state.withLock { $0.since = Measurement(label: label) }
        }
        let resting = LoopObserver(activities: .beforeWaiting, order: .max) { [state = Weak(self)] _, _ in
            state.value?.rest()
        }
        loop.add(leaving, to: .common)
        loop.add(resting, to: .common)
    }

    private func rest() {
        state.withLock { state in
            guard let since = state.since.take() else { return }
            let span = since.span()
            if span.isSlowTurn { state.long.append(span) }
        }
    }

    var long: [Receipt.Span] { state.withLock { $0.long } }

    private struct Weak: Sendable {
        weak var value: BusyTimes?

        init(_ value: BusyTimes) { self.value = value }
    }
}
