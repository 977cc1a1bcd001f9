import CRunLoopPorts
import Glibc
import Locking
import RunLoopKit

/// The implementation of a local port: it watches its listener and its connections in all modes of the port, and delivers their
/// messages, one at a time.
///
/// In a mode, a port consists of an anchor and one descriptor source per connection, so that connections are served in rotation
/// with all ready descriptors (R36). The anchor is a source that is never signalled. It keeps the mode from being empty (R9), and
/// reports when the port is added to a mode or removed from one, in whatever way. It retains this object, which thus lives as
/// long as a loop or a holder has the port.
///
/// The lock is taken before those of loops and items: none of these calls back into a receiver while it holds one.
final class PortReceiver: Sendable {
    struct Connection: Sendable {
        let socket: MessageSocket
        let peer: run_loop_peer
    }

    struct Presence: Sendable {
        let loop: EventRunLoop
        let mode: EventRunLoop.Mode
        /// Adds the listening source to the mode again after a pause.
        var retry: EventTimer?
        /// Why not all sources could be added. It is returned to the caller; if there is none, a warning is printed.
        fileprivate var failure: RunLoopError?
    }

    struct Watched: Sendable {
        let connection: Connection
        let source: DescriptorSource
    }

    /// What the holder has passed to the port.
    struct Callbacks: Sendable {
        let handler: LocalPort.Boxed
        let options: LocalPort.Options
    }

    struct State: Sendable {
        /// Nil once closed.
        fileprivate(set) var callbacks: Callbacks?
        var presences: [Presence] = []
        /// It retains this object.
        fileprivate weak var anchor: EventSource?
        fileprivate var listener: Listener?
        fileprivate var listening: DescriptorSource?
        /// Keyed by descriptor. Each keeps its socket open, so that the number is not reused.
        var watched: [Int32: Watched] = [:]
        var isDelivering = false
        /// Connections that had a message while the handler was busy: removed from all modes until it is done.
        var passedOver: [Int32] = []
    }

    /// Where it is, for the threads that wait for it.
    let place = PortPlace()
    let state: ForkSafeMutex<State>
    /// Held while a message is received, which never blocks.
    let space = ForkSafeMutex(ReceiveSpace())

    init(options: LocalPort.Options, _ callback: @escaping LocalPort.Callback) {
        state = ForkSafeMutex(State(callbacks: Callbacks(handler: LocalPort.Boxed(call: callback), options: options)))
    }

    /// Nil once closed.
    var options: LocalPort.Options? { state.withLock { $0.callbacks?.options } }

    deinit { shutDown() }

    func makeAnchor() -> EventSource {
        let anchor = EventSource(
            onSchedule: { loop, mode in self.followAnchor(on: loop, mode) },
            onCancel: { loop, mode in self.followAnchor(on: loop, mode) },
            onNewCommon: { loop, mode in self.warnOfFailure(on: loop, mode) }
        ) { _ in }
        state.withLock { $0.anchor = anchor }
        return anchor
    }

    /// Closes all connections and releases the name; notifies the holder, the first time only (R55), and frees the callbacks.
    func close() { shutDown()?.options.onInvalidation?() }

    /// Returns the callbacks, the first time only.
    @discardableResult
    private func shutDown() -> Callbacks? {
        let former = state.withLock { state in
            let former = state
            state = State()
            place.note([])
            return former
        }
        NamedPlaces.forget(place)
        former.listening?.invalidate()
        for watched in former.watched.values {
            watched.connection.socket.hangUp()
            watched.source.invalidate()
        }
        return former.callbacks
    }
}

// MARK: - Added to and removed from modes

extension PortReceiver {
    /// Called after the anchor was added to a mode or removed from it. If several threads do that, these calls come in any order, so each
    /// looks where the anchor is by now.
    private func followAnchor(on loop: EventRunLoop, _ mode: EventRunLoop.Mode) {
        state.withLock { state in
            guard state.callbacks != nil, let anchor = state.anchor else { return }
            guard loop.contains(anchor, in: mode) else { return state.leave(loop, mode, place) }
            if state.index(of: loop, mode) == nil { state.enter(loop, mode, place) }
        }
    }

    /// For a mode that became common: no caller gets the error.
    private func warnOfFailure(on loop: EventRunLoop, _ mode: EventRunLoop.Mode) {
        guard let failure = takeFailure(on: loop, mode) else { return }
        // A loop or a port that is ending at this moment has nothing to serve.
        if failure.code != .loopEnded, failure.code != .itemInvalid { LoopWarning.portNotInCommonMode.printOnce() }
    }

    /// Why the latest addition to a mode failed; for the common mode, to one of the loop's modes.
    func takeFailure(on loop: EventRunLoop, _ mode: EventRunLoop.Mode) -> RunLoopError? {
        state.withLock { state in
            var failure: RunLoopError?
            for index in state.presences.indices where state.presences[index].loop === loop {
                guard mode == .common || state.presences[index].mode == mode else { continue }
                failure = state.presences[index].failure.take() ?? failure
            }
            return failure
        }
    }
}

extension PortReceiver.State {
    fileprivate mutating func enter(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode, _ place: PortPlace) {
        var presence = PortReceiver.Presence(loop: loop, mode: mode)
        do throws(RunLoopError) {
            if let listening { try loop.add(listening, to: mode) }
            for (descriptor, watched) in watched where !passedOver.contains(descriptor) {
                try loop.add(watched.source, to: mode)
            }
        } catch {
            presence.failure = error
        }
        presences.append(presence)
        update(place)
    }

    /// Adds the source of a new connection to all modes of the port. A loop that is just ending refuses it, and another one may serve it.
    fileprivate func watch(_ source: DescriptorSource) throws(RunLoopError) {
        var refusal: RunLoopError?
        var isWatched = false
        for presence in presences {
            do throws(RunLoopError) {
                try presence.loop.add(source, to: presence.mode)
                isWatched = true
            } catch {
                guard error.code == .loopEnded else { throw error }
                refusal = error
            }
        }
        if let refusal, !isWatched { throw refusal }
    }

    fileprivate mutating func leave(_ loop: EventRunLoop, _ mode: EventRunLoop.Mode, _ place: PortPlace) {
        if let index = self.index(of: loop, mode) {
            presences.remove(at: index).retry?.invalidate()
            update(place)
        }
        if let listening { loop.remove(listening, from: mode) }
        for watched in watched.values { loop.remove(watched.source, from: mode) }
    }
}

// MARK: - Connections that begin and end

extension PortReceiver {
    var connectionCount: Int { state.withLock { $0.watched.count } }

    /// Claims a name, and accepts connections to it.
    func listen(as name: PortName, in directory: PortDirectory) throws(RunLoopError) {
        let listener = try Listener(name, in: directory)
        let source = DescriptorSource(descriptor: listener.socket.descriptor) { [weak self] _, _ in
            self?.accept(from: listener)
        }
        state.withLock { state in
            state.listener = listener
            state.listening = source
        }
        NamedPlaces.note(place, at: NamedPlaces.Address(name: name, directory: directory))
    }

    /// Accepts one connection; the kernel reports readiness again if there are more.
    func accept(from listener: Listener) {
        guard let options else { return }
        var peer = run_loop_peer()
        switch listener.accept(&peer) {
        case .connection(let socket):
            let connection = Connection(socket: socket, peer: peer)
            guard options.accepts(PortPeer(peer)) else { return drop(connection, .peerNotAllowed) }
            do { try insert(connection) } catch { drop(connection, .outOfDescriptors) }
        case .refused: options.onDrop?(PortPeer(peer), .outOfDescriptors)
        case .starved: pauseListening()
        case .nothing: break
        }
    }

    /// Takes ownership of a connection. Throws `portInvalid` or `outOfResources`, or `loopEnded` if no loop of the port accepts it any more.
    @discardableResult
    func adopt(_ socket: MessageSocket) throws(RunLoopError) -> Connection {
        let connection = Connection(socket: socket, peer: socket.peer)
        try insert(connection)
        return connection
    }

    func insert(_ connection: Connection) throws(RunLoopError) {
        let fd = connection.socket.descriptor
        let source = DescriptorSource(reading: fd) { [weak self] in self?.deliver(from: connection) ?? .nothing }
        try state.withLock { state throws(RunLoopError) in
            guard state.callbacks != nil else { throw RunLoopError(.portInvalid) }
            do throws(RunLoopError) {
                try state.watch(source)
            } catch {
                source.invalidate()
                throw error
            }
            state.watched[fd] = Watched(connection: connection, source: source)
        }
    }

    func forget(_ connection: Connection) {
        let watched = state.withLock { $0.watched.removeValue(forKey: connection.socket.descriptor) }
        watched?.source.invalidate()
    }
}

// MARK: - Out of descriptors

extension PortReceiver {
    /// Removes the listening source from all modes for a while: it stays ready, and would make the loop spin.
    func pauseListening() {
        state.withLock { state in
            guard let listening = state.listening else { return }
            for index in state.presences.indices where state.presences[index].retry == nil {
                let presence = state.presences[index]
                presence.loop.remove(listening, from: presence.mode)
                state.presences[index].retry = makeRetry(for: presence)
            }
        }
    }

    /// Each mode has its own timer: another of the port's modes may not run for a long time.
    private func makeRetry(for presence: Presence) -> EventTimer {
        let timer = EventTimer(after: .milliseconds(10)) { [weak self, mode = presence.mode] _ in
            self?.resumeListening(on: .current, mode)
        }
        // A loop that has ended will be removed without this.
        try? presence.loop.attach(timer: timer, to: presence.mode)
        return timer
    }

    /// Returns false if the source cannot be watched there.
    static func add(_ source: DescriptorSource, to presence: Presence) -> Bool {
        do {
            try presence.loop.add(source, to: presence.mode)
            return true
        } catch {
            // A loop that has ended will be removed without this.
            return error.code == .loopEnded
        }
    }

    private func resumeListening(on loop: EventRunLoop, _ mode: EventRunLoop.Mode) {
        state.withLock { state in
            guard let listening = state.listening, let index = state.index(of: loop, mode) else { return }
            let presence = state.presences[index]
            state.presences[index].retry = Self.add(listening, to: presence) ? nil : makeRetry(for: presence)
        }
    }
}

extension PortReceiver.State {
    fileprivate func index(of loop: EventRunLoop, _ mode: EventRunLoop.Mode) -> Int? {
        presences.firstIndex { $0.loop === loop && $0.mode == mode }
    }

    fileprivate func update(_ place: PortPlace) { place.note(presences.map { ($0.loop, $0.mode) }) }
}
