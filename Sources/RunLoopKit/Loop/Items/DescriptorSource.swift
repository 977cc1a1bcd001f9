internal import CRunLoopShims
internal import Glibc
import Locking
internal import Synchronization

/// Watches a file descriptor that the kernel can wait for: socket, pipe, eventfd, timerfd, signalfd, inotify, pidfd (R34, R35). The
/// loop never reads or writes it and never closes it. Version 1 in CFRunLoop's terms.
///
/// Level-triggered, unless asked otherwise: while an event lasts, each turn delivers it again. One source is delivered a turn (R36).
/// Any thread may create, add and invalidate it; not in a signal handler. Invalidate the source before closing the descriptor. If the
/// descriptor is closed first, the source delivers `closed` at the latest when events keep coming or its number is watched again, and is invalid then; it never keeps the loop busy (R37).
public final class DescriptorSource: Sendable {
    /// Called on a loop's thread, never on two at once, with what has happened to the descriptor (R36).
    public typealias Handler = @Sendable (DescriptorSource, Events) -> Void

    /// What to wait for, and what has come.
    public struct Events: OptionSet, Hashable, Sendable {
        /// Bits of this library's own, not epoll's.
        public let rawValue: UInt32

        /// Bits that name no event are kept and never delivered.
        @inlinable
        public init(rawValue: UInt32) { self.rawValue = rawValue }

        /// A read, or an accept, will not wait; the end of the stream counts.
        public static let readable = Events(rawValue: 1)
        /// A write will not wait; a connect(2) that has finished counts, also one that failed.
        public static let writable = Events(rawValue: 2)
        /// The peer has closed, or shut down writing. Delivered in full closes also if not asked for.
        public static let hangUp = Events(rawValue: 4)
        /// Delivered also if not asked for.
        public static let error = Events(rawValue: 8)
        /// The descriptor was closed under the source, which is now invalid. Delivered also if not asked for.
        public static let closed = Events(rawValue: 16)
    }

    /// As given. The caller's to read, write and close; it is not checked before the source is added.
    public let descriptor: Int32
    /// What was asked for. Some events come unasked: see each.
    public let interest: Events
    /// Whether an event is delivered once when it begins, and not as long as it lasts.
    public let isEdgeTriggered: Bool
    let readsItself: Bool
    private let state: ForkSafeMutex<State>

    private struct State: Sendable {
        /// The ticket is the descriptor table's.
        var places: [ItemPlace<Int>] = []
        var isCalled = false
        var isMuted = false
        /// Nil once invalid.
        var handler: Callback?
    }

    /// What a handler has found that reads the descriptor itself.
    package enum Finding: Sendable {
        case nothing
        case something
        case perhapsMore
    }

    /// Not the bare closures: in an Optional they would be called through a thunk, allocated each time.
    enum Callback: Sendable {
        case handler(Handler)
        /// Reads without waiting, and stands for it if there is nothing.
        case reader(@Sendable () -> Finding)
    }

    /// - Parameter handler: Called on a loop's thread; never on two at once.
    public init(
        descriptor: Int32,
        events: Events = .readable,
        edgeTriggered: Bool = false,
        handler: @escaping Handler
    ) {
        self.descriptor = descriptor
        interest = events
        isEdgeTriggered = edgeTriggered
        readsItself = false
        state = ForkSafeMutex(State(handler: .handler(handler)))
    }

    /// For handlers of this package's own.
    package init(reading descriptor: Int32, reader: @escaping @Sendable () -> Finding) {
        self.descriptor = descriptor
        interest = .readable
        isEdgeTriggered = false
        readsItself = true
        state = ForkSafeMutex(State(handler: .reader(reader)))
    }

    /// Whether it can still be delivered. Any thread.
    public var isValid: Bool { state.withLock { $0.handler != nil } }

    /// Takes it out of all loops and modes for good, and frees the handler. Any thread; what runs already runs to its end.
    public func invalidate() {
        let (places, handler) = state.withLock { state in (state.places, state.handler.take()) }
        guard handler != nil else { return }
        for place in places { place.loop.detach(self, from: place.mode) }
        for place in places { place.loop.forgetCommon(self) }
    }

    var epollEvents: UInt32 {
        var events: UInt32 = isEdgeTriggered ? EPOLLET.rawValue : 0
        if interest.contains(.readable) { events |= EPOLLIN.rawValue }
        if interest.contains(.writable) { events |= EPOLLOUT.rawValue }
        if interest.contains(.hangUp) { events |= EPOLLRDHUP.rawValue }
        return events
    }
}

extension DescriptorSource.Events {
    /// From the bits of epoll, which are those of poll.
    fileprivate init(epoll events: UInt32) {
        self = []
        if events & EPOLLIN.rawValue != 0 { insert(.readable) }
        if events & EPOLLOUT.rawValue != 0 { insert(.writable) }
        if events & (EPOLLHUP.rawValue | EPOLLRDHUP.rawValue) != 0 { insert(.hangUp) }
        if events & EPOLLERR.rawValue != 0 { insert(.error) }
        if events & UInt32(POLLNVAL) != 0 { insert(.closed) }
    }
}

// MARK: - The loop's side

extension DescriptorSource {
    /// Calls the handler. While it is being called already, further up the stack or on another thread, the source is muted instead,
    /// until that call ends (R23). The loop's thread.
    ///
    /// - Returns: what the handler found; nothing if it was not called.
    func deliver(_ epollEvents: UInt32) -> Finding {
        guard let handler = begin() else { return .nothing }
        let events = Events(epoll: epollEvents)
        let finding = callOut(handler, source: self, events: events)
        end()
        if events.contains(.closed) { invalidate() }
        return finding
    }

    private func begin() -> Callback? {
        state.withLock { state in
            guard let handler = state.handler else { return nil }
            guard !state.isCalled else {
                state.isMuted = true
                for place in state.places { place.mode.withDescriptors { $0.mute(place.ticket, in: $1) } }
                return nil
            }
            state.isCalled = true
            return handler
        }
    }

    private func end() {
        state.withLock { state in
            state.isCalled = false
            guard state.isMuted else { return }
            state.isMuted = false
            for place in state.places { place.mode.withDescriptors { $0.unmute(place.ticket, in: $1) } }
        }
    }
}

extension DescriptorSource: LoopItem {
    func attach(to mode: LoopMode, of loop: EventRunLoop) throws(RunLoopError) -> Bool {
        try state.withLock { state throws(RunLoopError) in
            guard state.handler != nil else { throw RunLoopError(.itemInvalid) }
            guard !state.places.isIn(mode) else { return false }
            let ticket = try mode.withDescriptors { descriptors, poller throws(RunLoopError) in
                try descriptors.insert(self, in: poller, for: loop.wake)
            }
            state.places.append(ItemPlace(loop: loop, mode: mode, ticket: ticket))
            mode.population.add(1, ordering: .releasing)
            return true
        }
    }

    func detach(from mode: LoopMode) -> Bool {
        state.withLock { state in
            guard let place = state.places.leave(mode) else { return false }
            mode.withDescriptors { $0.remove(place.ticket, from: $1) }
            mode.population.subtract(1, ordering: .releasing)
            return true
        }
    }

    func isAttached(to mode: LoopMode) -> Bool { state.withLock { $0.places.isIn(mode) } }

    /// The kernel tells a sleeping loop of events by itself, but not of a source found closed because of this one.
    func didAttach(to mode: LoopMode, of loop: EventRunLoop) {
        if mode.hasReadyDescriptors.load(ordering: .acquiring) { loop.wakeUpFromElsewhere() }
    }
}
