import CStalls
import Dispatch
import Foundation
import Glibc
import StackCapture
import Synchronization

/// A thread that spins in a closure called through a generic function.
final class SpinningWorker: Sendable {
    private let found = Mutex<ThreadIdentity?>(nil)
    private let isSpinning = Atomic(false)
    private let isReleased = Atomic(false)
    private let handle = Mutex<pthread_t?>(nil)

    init() {
        var thread = pthread_t()
        let context = unsafe Unmanaged.passUnretained(self).toOpaque()  // joined before it is released
        unsafe pthread_create(
            &thread,
            nil,
            { context in
                unsafe Unmanaged<SpinningWorker>.fromOpaque(context!).takeUnretainedValue().run()
                return nil
            },
            context
        )
        handle.withLock { $0 = thread }
        // On its way to the closure it may have to make generic types first.
        while !isSpinning.load(ordering: .acquiring) { sched_yield() }
    }

    var identity: ThreadIdentity { found.withLock { $0! } }

    func finish() {
        isReleased.store(true, ordering: .relaxed)
        if let thread = handle.withLock({ $0.take() }) { pthread_join(thread, nil) }
    }

    private func run() {
        found.withLock { $0 = ThreadIdentity.current() }
        _ = applyTwice([1, 2]) { element in
            var sum = element
            isSpinning.store(true, ordering: .releasing)
            while !isReleased.load(ordering: .relaxed) { sum = sum &* 31 &+ 7 }
            return sum
        }
    }
}

@inline(never)
private func applyTwice<Element>(_ elements: [Element], _ body: (Element) -> Element) -> [Element] {
    elements.map { body(body($0)) }
}

/// A thread that alternates between running and sleeping, so briefly that a look's finding is often outdated; and one
/// that constantly sends it one of the application's signals.
final class NappingWorker: Sendable {
    private let found = Mutex<ThreadIdentity?>(nil)
    private let isReleased = Atomic(false)
    private let ended = DispatchSemaphore(value: 0)

    init(signal: Int32) {
        Thread.detachNewThread { [self] in
            found.withLock { $0 = ThreadIdentity.current() }
            while !isReleased.load(ordering: .relaxed) {
                usleep(20)
                for _ in 0..<20_000 where isReleased.load(ordering: .relaxed) { break }
            }
            ended.signal()
        }
        while found.withLock({ $0 == nil }) { sched_yield() }
        Thread.detachNewThread { [self, thread = identity.threadID] in
            while !isReleased.load(ordering: .relaxed) {
                stall_send_own(thread, signal)
                usleep(20)
            }
            ended.signal()
        }
    }

    var identity: ThreadIdentity { found.withLock { $0! } }

    func finish() {
        isReleased.store(true, ordering: .relaxed)
        for _ in 0..<2 { ended.wait() }
    }
}
