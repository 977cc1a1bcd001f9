public import RunLoopKit
public import StallReports

/// A loop that the monitor can watch: one that publishes a heartbeat, and whose thread is known.
///
/// `EventRunLoop` is one. Another event loop joins in by publishing its phases to a heartbeat of its own. All
/// members are read from the watchdog's thread while the loop runs, and must not block.
public protocol WatchableLoop: AnyObject, Sendable {
    /// What people call the loop: "main".
    var label: String { get }
    /// Where the loop publishes its phase.
    var heartbeat: LoopHeartbeat { get }
    /// The thread that turns the loop, as far as it is known now.
    var thread: LoopThread? { get }
    /// The name of the mode that a pulse shows by its index.
    func modeName(at index: Int) -> String?
    /// Whether a wait on this descriptor (epoll_wait(2), io_uring_enter(2)) is the loop's own, in which it rests. For loops that do
    /// not publish each of their waits: a thread found in it is not stalled. False unless implemented.
    func waits(on descriptor: Int32) -> Bool
    /// The epoll set (epoll(7)) that the loop rests on in a mode, given by its index: clients that wait there during a stall are counted. Nil where it is
    /// not known, as it is unless implemented.
    func waitSet(inMode index: Int) -> Int32?
    /// What reports call this kind of thing. `run_loop` unless implemented.
    var type: WatchedType { get }
}

extension WatchableLoop {
    /// The loop publishes each of its waits.
    public func waits(on descriptor: Int32) -> Bool { false }

    /// Not known.
    public func waitSet(inMode index: Int) -> Int32? { nil }

    /// A run loop.
    public var type: WatchedType { .runLoop }
}

extension EventRunLoop: WatchableLoop {}
