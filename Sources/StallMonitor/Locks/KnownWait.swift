import RunLoopKit
import StackCapture

/// A wait that can be followed to the thread that ends it, by the call in which the thread waits.
enum KnownWait: Hashable, Sendable {
    case futex(FutexWait)
    /// A wait of this package's for a message port.
    case port(PortWait.Words)

    /// Nil for another call. The memory of a port's wait is read now: the thread must be in the call before and after.
    init?(_ call: SystemCall, _ memory: LockMemory) {
        if let futex = FutexWait(call) {
            self = .futex(futex)
        } else if let words = Self.words(call, memory) {
            self = .port(words)
        } else {
            return nil
        }
    }

    /// The words beside the memory that the call was given.
    private static func words(_ call: SystemCall, _ memory: LockMemory) -> PortWait.Words? {
        let address: UInt
        switch call.name {
        case "epoll_wait"?, "epoll_pwait"?, "epoll_pwait2"?:
            guard call.arguments.count > 1 else { return nil }
            address = call.arguments[1] &- UInt(PortWait.count * 4)
        case "ppoll"?:
            guard call.arguments.count > 1, call.arguments[1] == 1 else { return nil }
            address = call.arguments[0] &+ UInt(PortWait.offsetBehindPolled)
        default: return nil
        }
        return memory.words(address, PortWait.count).flatMap(PortWait.Words.init)
    }

    var isTimed: Bool {
        switch self {
        case .futex(let futex): futex.isTimed
        case .port(let port): port.isTimed
        }
    }

    /// Whether the thread that could end this wait can do so while it waits in the way that `other` says: a loop that waits for a reply
    /// serves the ports of that mode.
    func canEnd(during other: KnownWait) -> Bool {
        guard case .port(let port) = self, case .port(let other) = other else { return false }
        return port.isServed(during: other)
    }
}
