import CTrials
import StackCapture
import Synchronization

/// The thread that a scene is about.
enum Subject {
    private static let found = Mutex<ThreadIdentity?>(nil)
    private static let goingOn = Atomic(false)
    private static let over = Atomic(true)

    /// Whether the scene executes another round.
    static var goesOn: Bool { goingOn.load(ordering: .relaxed) }
    static var isOver: Bool { over.load(ordering: .acquiring) }
    static var identity: ThreadIdentity? { found.withLock { $0 } }

    static func expect() {
        found.withLock { $0 = nil }
        over.store(false, ordering: .releasing)
        goingOn.store(true, ordering: .relaxed)
    }

    static func release() { goingOn.store(false, ordering: .relaxed) }

    /// Called by the scene's thread, inside of the scene.
    static func here() {
        trial_let_freeze()
        let identity = ThreadIdentity.current()
        found.withLock { $0 = identity }
    }

    static func leave() { over.store(true, ordering: .releasing) }

    /// Repeats `body` until released.
    @inline(never)
    static func loop(_ body: () -> Void) {
        here()
        while goesOn { body() }
        leave()
    }

    /// Computes for a few microseconds.
    @inline(never)
    static func work(_ amount: Int = 2000) {
        var sum = amount
        for number in 0..<amount { sum = sum &* 31 &+ number }
        sink.store(sum, ordering: .relaxed)
    }

    static let sink = Atomic(0)
}
