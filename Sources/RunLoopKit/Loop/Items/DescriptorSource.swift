import CRunLoopShims
import Glibc
import Locking
import Synchronization

/// Watches a file descriptor that the kernel can wait for: socket, pipe, eventfd, timerfd, signalfd, inotify, pidfd (R34, R35).
/// The loop never reads, writes or closes it. It corresponds to CFRunLoop's version 1 source.
///
/// Level-triggered by default: while an event lasts, each turn delivers it again. One source is delivered per turn (R36). Any
/// thread may create, add and invalidate it; not in a signal handler. Invalidate the source before closing the descriptor. If
/// the descriptor is closed first, the source delivers `closed`, at the latest when events keep arriving or its number is
/// watched again, and is then invalid; it never keeps the loop busy (R37).
public final class DescriptorSource: Sendable {
    /// Called on the thread of a loop, which is ``EventRunLoop/current``, never on two at once, with the events of the
    /// descriptor (R36).
    public typealias Callback = @Sendable (DescriptorSource, Events) -> Void

    /// The events to wait for, and the events that have arrived.
    public struct Events: OptionSet, Hashable, Sendable {
        /// Bits defined by this library, not epoll's.
        public let rawValue: UInt32

        /// Bits that name no event are kept but never delivered.
        @inlinable
        public init(rawValue: UInt32) { self.rawValue = rawValue }

        /// A read or an accept will not block; the end of the stream counts.
        public static let readable = Events(rawValue: 1)
        /// A write will not block; a connect(2) that has finished counts, even if it failed.
        public static let writable = Events(rawValue: 2)
        /// The peer has closed, or shut down writing. A full close is delivered even if not requested.
        public static let hangUp = Events(rawValue: 4)
        /// An error. Delivered even if not requested.
        public static let error = Events(rawValue: 8)
        /// The descriptor was closed before the source was invalidated; the source is now invalid. Delivered even if not
        /// requested.
        public static let closed = Events(rawValue: 16)
    }

    /// The descriptor as passed to the initialiser. The caller reads, writes and closes it; it is not checked before the source
    /// is added.
    public let descriptor: Int32
    /// The requested events. Some events are also delivered without a request: see each.
    public let interest: Events
    /// Whether an event is delivered once when it begins, instead of as long as it lasts.
    public let isEdgeTriggered: Bool
    let readsItself: Bool
    private let state: ForkSafeMutex<State>

    private struct State: Sendable {
        /// The ticket is the descriptor table's.
        var places: [ItemPlace<Int>] = []
        /// The loops that record it for all their common modes.
        var commonLoops: [EventRunLoop] = []
        var isCalled = false
        var isMuted = false
        /// Nil once invalid.
        var handler: Boxed?
    }

    /// The result of a handler that reads the descriptor itself.
    package enum Finding: Sendable {
        case nothing
        case something
        case perhapsMore
    }

    /// An enum instead of bare closures: a closure in an Optional would be called through a thunk that is allocated each time.
    enum Boxed: Sendable {
        case handler(Callback)
        /// Reads without blocking, and returns `nothing` if there is nothing.
        case reader(@Sendable () -> Finding)
    }

    /// - Parameter callback: Called on a loop's thread; never on two at once.
    public init(
        descriptor: Int32,
        events: Events = .readable,
        edgeTriggered: Bool = false,
        _ callback: @escaping Callback
    ) {
        self.descriptor = descriptor
        interest = events
        isEdgeTriggered = edgeTriggered
        readsItself = false
        state = ForkSafeMutex(State(handler: .handler(callback)))
    }

    /// For handlers of this package itself.
    package init(reading descriptor: Int32, reader: @escaping @Sendable () -> Finding) {
        self.descriptor = descriptor
        interest = .readable
        isEdgeTriggered = false
        readsItself = true
        state = ForkSafeMutex(State(handler: .reader(reader)))
    }

    /// Whether it can still be delivered. Any thread.
    public var isValid: Bool { state.withLock { $0.handler != nil } }

    /// Removes it permanently from all loops and modes, and frees the handler. Any thread; a running handler completes.
    public func invalidate() {
        let (places, commonLoops, handler) = state.withLock { state in
            (state.places, state.commonLoops.take(), state.handler.take())
        }
        guard handler != nil else { return }
        for place in places { place.loop.detach(self, from: place.mode) }
        for loop in commonLoops { loop.forgetCommon(self) }
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
    /// Converts the bits of epoll, which are those of poll.
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
    /// Calls the handler. If it is already being called, further up the stack or on another thread, the source is instead muted
    /// until that call ends (R23). The loop's thread.
    ///
    /// - Returns: What the handler found; `nothing` if it was not called.
    func deliver(_ epollEvents: UInt32) -> Finding {
        guard let handler = begin() else { return .nothing }
        let events = Events(epoll: epollEvents)
        let finding = callOut(handler, source: self, events: events)
        end()
        if events.contains(.closed) { invalidate() }
        return finding
    }

    private func begin() -> Boxed? {
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
        let unmuted: [ItemPlace<Int>] = state.withLock { state in
            state.isCalled = false
            guard state.isMuted else { return [] }
            state.isMuted = false
            for place in state.places { place.mode.withDescriptors { $0.unmute(place.ticket, in: $1) } }
            return state.places
        }
        for place in unmuted { wakeForClosed(place.mode, of: place.loop) }
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

    func noteCommon(_ isRecorded: Bool, on loop: EventRunLoop) {
        state.withLock { $0.commonLoops.noteCommon(isRecorded, on: loop) }
    }

    func didAttach(to mode: LoopMode, of loop: EventRunLoop) { wakeForClosed(mode, of: loop) }

    /// The kernel wakes a sleeping loop for events, but not for a source that another thread has just found closed.
    private func wakeForClosed(_ mode: LoopMode, of loop: EventRunLoop) {
        if mode.hasReadyDescriptors.load(ordering: .acquiring) { loop.wakeUpFromElsewhere() }
    }
}
