import Dispatch
import Foundation
import StackCapture
import Synchronization

/// A thread that waits in one of those libswiftDispatch functions that have neither an unwind table nor a frame pointer.
final class WaitingWorker: Sendable {
    enum Wait: CaseIterable {
        case semaphore, semaphoreByWallClock, group
    }

    private let found = Mutex<ThreadIdentity?>(nil)
    private let semaphore = DispatchSemaphore(value: 0)
    private let group = DispatchGroup()
    private let ended = DispatchSemaphore(value: 0)

    init(_ wait: Wait) {
        group.enter()
        Thread.detachNewThread { [self] in
            found.withLock { $0 = ThreadIdentity.current() }
            waitLongEnough(wait)
            ended.signal()
        }
        while found.withLock({ $0 == nil }) { sched_yield() }
    }

    var identity: ThreadIdentity { found.withLock { $0! } }

    func finish() {
        semaphore.signal()
        group.leave()
        ended.wait()
    }

    @inline(never)
    private func waitLongEnough(_ wait: Wait) {
        let result =
            switch wait {
            case .semaphore: semaphore.wait(timeout: .now() + 600)
            case .semaphoreByWallClock: semaphore.wait(wallTimeout: .now() + 600)
            case .group: group.wait(timeout: .now() + 600)
            }
        precondition(result == .success)
    }
}
