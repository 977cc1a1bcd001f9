import CRunLoopShims
import Dispatch
import Glibc
import RunLoopKit
import Synchronization
import TestSupport

@testable import StallMonitor

/// A third-party event loop, which publishes that it works but not that it waits.
final class ForeignLoop: WatchableLoop {
    let heartbeat = LoopHeartbeat()
    let label = "foreign"
    private let saysWhatItWaitsOn: Bool
    private let set = epoll_create1(Int32(EPOLL_CLOEXEC))
    private let wakeFlag: Int32
    private let identity = Mutex<LoopThread?>(nil)
    /// How long after it was first seen waiting the loop moves on, just when its thread is asked for.
    private let movesOn: Duration?
    private let firstSeen = Mutex<MonotonicInstant?>(nil)
    let hasMovedOn = DispatchSemaphore(value: 0)

    var thread: LoopThread? {
        let seen = firstSeen.withLock { $0 }
        if let movesOn, let seen, MonotonicInstant.now - seen >= movesOn {
            heartbeat.publish(.idle)
            hasMovedOn.signal()
        }
        return identity.withLock { $0 }
    }

    init(saysWhatItWaitsOn: Bool, movesOn: Duration? = nil) {
        (self.saysWhatItWaitsOn, self.movesOn) = (saysWhatItWaitsOn, movesOn)
        var ends: [Int32] = [0, 0]
        precondition(unsafe pipe(&ends) == 0)
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        wakeFlag = ends[1]
        _ = run_loop_add_wake_descriptor(set, ends[0])
        _ = run_loop_signal_wake_descriptor(set, ends[0])
        let isWaiting = DispatchSemaphore(value: 0)
        startThread { [self] in
            identity.withLock { $0 = EventRunLoop.current.thread }
            heartbeat.publish(.beforeSources)
            isWaiting.signal()
            var events = unsafe epoll_event()
            while unsafe event_run_loop_wait(set, &events, 1, -1) == -EINTR {}
            heartbeat.publish(.idle)
            heartbeat.end()
        }
        isWaiting.wait()
    }

    func modeName(at index: Int) -> String? { nil }

    func waits(on descriptor: Int32) -> Bool {
        guard saysWhatItWaitsOn && descriptor == set else { return false }
        firstSeen.withLock { $0 = $0 ?? .now }
        return true
    }

    func end() {
        _ = unsafe write(wakeFlag, "x", 1)
    }
}

/// A loop that was found by its waits and is busy. What it waits for is an epoll set, or was one: by now it is another file, or another loop's set.
final class LeftLoop: PollingLoop {
    let heartbeat = LoopHeartbeat()
    let label: String
    let thread: LoopThread? = nil
    let polledDescriptors: [Int32] = []
    let hasLostItsSet: Bool
    private let set: Int32

    init(label: String, isOpen: Bool, hasLostItsSet: Bool = false) {
        (self.label, self.hasLostItsSet) = (label, hasLostItsSet)
        set = isOpen ? epoll_create1(Int32(EPOLL_CLOEXEC)) : unsafe open("/dev/null", O_RDONLY | O_CLOEXEC)
        heartbeat.publish(.beforeSources)
    }

    deinit { close(set) }

    func waitSet(inMode index: Int) -> Int32? { set }

    func modeName(at index: Int) -> String? { nil }
}
