import CRunLoopShims
import Glibc

/// The descriptor sources of one mode, and the queue of those that are ready. Guarded by the mode's lock.
///
/// Events are harvested in batches and delivered one per turn, in rotation (R36): a source that was delivered goes to the end
/// of the queue when the next harvest finds it ready again. If a source was not harvested in the same turn, its events are
/// polled once more, because a callout since then may have consumed them.
///
/// A source that reads its descriptor itself needs no such poll: its own read finds out. If it has found something it may be
/// called again before the kernel is polled, because it is expected to have more. Expected sources come after all sources that
/// are known to be ready. They are cleared whenever the kernel is polled, so that the loop's bound for polling (see `Poller`)
/// applies here, too.
struct DescriptorTable: Sendable {
    struct Delivery: Sendable {
        let source: DescriptorSource
        /// In epoll's bits; POLLNVAL if the descriptor is no longer the one that was added.
        let events: UInt32
        fileprivate let token: UInt64
        fileprivate let isExpected: Bool
    }

    private struct Slot: Sendable {
        let source: DescriptorSource
        let token: UInt64
        /// The file that had the number when the source was added.
        let file: run_loop_file
        var events: UInt32 = 0
        /// The harvest to which `events` belong.
        var harvest: UInt64 = 0
        var isQueued = false
        /// Removed from the epoll set while the source is in its callout elsewhere, so that a nested run does not spin on it. Events
        /// that were harvested before are dropped: the kernel reports a descriptor again that is added again.
        var isMuted = false
        /// Another file was opened under the descriptor's number.
        var isClosed = false
        var deliveries = 0
        /// For a source that reads itself: how many more times the kernel is polled before it is called again, because it had nothing
        /// when it was expected to have more.
        var pollsFirst = 0
    }

    /// The number of deliveries of a level-triggered source between two checks whether its descriptor is still the same.
    private static let deliveriesPerCheck = 32
    /// The value of `pollsFirst` after such a call.
    private static let pollsAfterMiss = 32

    private var slots: [Slot?] = []
    private var freeTickets: [Int] = []
    private var ticketOfDescriptor: [Int32: Int] = [:]
    private var queue = TokenQueue()
    private var expected = TokenQueue()
    private var nextSerial: UInt64 = 0
    /// A descriptor had been closed before it was removed: its registration still exists if the file was duplicated.
    private var mayHaveOrphans = false
    /// An event came from a registration that cannot be removed. Only a new epoll set gets rid of it.
    private(set) var needsNewSet = false

    var isEmpty: Bool { ticketOfDescriptor.isEmpty }
    var hasReady: Bool { !queue.isEmpty || !expected.isEmpty }
    var sources: [DescriptorSource] { slots.compactMap { $0?.source } }
}

// MARK: - Adding and removing

extension DescriptorTable {
    /// Registers the source, and returns its ticket.
    mutating func insert(
        _ source: DescriptorSource,
        in poller: Poller,
        for wakeUp: WakeUp
    ) throws(RunLoopError) -> Int {
        if isMuted(source.descriptor) { throw RunLoopError(.descriptorInUse) }
        let ticket = freeTickets.last ?? slots.count
        // The serial number distinguishes it from a former source with the same ticket.
        let token = nextSerial << 32 | UInt64(ticket)
        try openSet(of: poller, for: wakeUp)
        var failure = poller.add(source.descriptor, events: source.epollEvents, token: token)
        if failure != nil, !poller.isOpen {
            try openSet(of: poller, for: wakeUp)
            failure = poller.add(source.descriptor, events: source.epollEvents, token: token)
        }
        if let failure { throw DescriptorTable.error(failure) }
        nextSerial = (nextSerial + 1) & 0x7FFF_FFFF
        if freeTickets.popLast() == nil { slots.append(nil) }
        slots[ticket] = Slot(source: source, token: token, file: run_loop_identify(source.descriptor))
        noteNew(source.descriptor)
        ticketOfDescriptor[source.descriptor] = ticket
        return ticket
    }

    /// To be called when a descriptor was added to the set, a source's or one of the loop's own. The kernel treats its number as new, so
    /// the file that a source had under it was closed without notice.
    mutating func noteNew(_ descriptor: Int32) {
        guard let former = ticketOfDescriptor.removeValue(forKey: descriptor) else { return }
        markClosed(former)
        mayHaveOrphans = true
    }

    mutating func remove(_ ticket: Int, from poller: Poller) {
        guard let slot = slots[ticket] else { return }
        if ticketOfDescriptor[slot.source.descriptor] == ticket {
            ticketOfDescriptor[slot.source.descriptor] = nil
            // A closed one is not in the set, which may have a descriptor of the loop's own under its number.
            if !slot.isMuted, !slot.isClosed, poller.remove(slot.source.descriptor) != nil { mayHaveOrphans = true }
        }
        slots[ticket] = nil
        freeTickets.append(ticket)
    }

    /// Makes the mode's epoll set if there is none, and registers every source in it. Sources whose descriptor is gone are
    /// marked as closed.
    mutating func openSet(of poller: Poller, for wakeUp: WakeUp) throws(RunLoopError) {
        guard !poller.isOpen else { return }
        try poller.open(for: wakeUp)
        needsNewSet = false
        mayHaveOrphans = false
        for ticket in slots.indices {
            guard let slot = slots[ticket], !slot.isMuted, !slot.isClosed else { continue }
            // The old set may be gone because all descriptors were closed, and other files may have been given their numbers.
            guard run_loop_identify(slot.source.descriptor) == slot.file else {
                markClosed(ticket)
                continue
            }
            let failure = poller.add(slot.source.descriptor, events: slot.source.epollEvents, token: slot.token)
            guard let failure else { continue }
            guard failure == ENOMEM || failure == ENOSPC else {
                markClosed(ticket)
                continue
            }
            // A set without some of its sources is worse than none: without one, the loop tries again.
            poller.close()
            throw RunLoopError(.outOfResources, errno: failure)
        }
    }

    mutating func mute(_ ticket: Int, in poller: Poller) {
        guard let slot = slots[ticket], !slot.isMuted else { return }
        slots[ticket]?.isMuted = true
        guard !slot.isClosed, poller.remove(slot.source.descriptor) != nil else { return }
        // The callout has closed it. If the file was duplicated its registration still exists, and only a new set gets rid of it.
        slots[ticket]?.isClosed = true
        needsNewSet = true
    }

    mutating func unmute(_ ticket: Int, in poller: Poller) {
        guard let slot = slots[ticket], slot.isMuted else { return }
        slots[ticket]?.isMuted = false
        if slot.isClosed { return enqueue(ticket) }
        guard poller.isOpen else { return }  // a new set will contain it
        // The callout may have opened another file under the number.
        let isSame = run_loop_identify(slot.source.descriptor) == slot.file
        let (descriptor, events) = (slot.source.descriptor, slot.source.epollEvents)
        if !isSame || poller.add(descriptor, events: events, token: slot.token) != nil { markClosed(ticket) }
    }

    /// Whether the descriptor is a muted source's: the kernel would not refuse it a second time, because the set lacks it.
    private func isMuted(_ descriptor: Int32) -> Bool {
        guard let ticket = ticketOfDescriptor[descriptor], let slot = slots[ticket], slot.isMuted else { return false }
        return !slot.isClosed && run_loop_identify(descriptor) == slot.file
    }

    private mutating func markClosed(_ ticket: Int) {
        slots[ticket]?.isClosed = true
        enqueue(ticket)
    }

    private static func error(_ failure: Int32) -> RunLoopError {
        switch failure {
        case EPERM, EBADF, EINVAL, ELOOP: RunLoopError(.descriptorNotPollable, errno: failure)
        case EEXIST: RunLoopError(.descriptorInUse)
        default: RunLoopError(.outOfResources, errno: failure)
        }
    }
}

// MARK: - Events

extension DescriptorTable {
    /// Records an event of a harvest.
    mutating func note(_ token: UInt64, events: UInt32, harvest: UInt64) {
        guard token < Poller.clockToken else { return }
        guard let ticket = ticket(of: token) else {
            // Usually a source that was removed since the wait returned. If the ticket never existed, the set belongs to
            // another library.
            needsNewSet = needsNewSet || mayHaveOrphans || Self.ticket(in: token) >= slots.count
            return
        }
        slots[ticket]?.events |= events
        slots[ticket]?.harvest = harvest
        enqueue(ticket)
    }

    /// The next source to be delivered, with its events.
    ///
    /// - Parameter freshHarvest: The number of the latest harvest, if no callout since then could have consumed its events.
    mutating func takeReady(freshHarvest: UInt64?, poller: Poller) -> Delivery? {
        while let token = queue.popFirst() {
            guard let ticket = ticket(of: token), var slot = slots[ticket] else { continue }
            let events = currentEvents(of: &slot, freshHarvest: freshHarvest, poller: poller)
            slot.isQueued = false
            slot.events = 0
            slots[ticket] = slot
            if events != 0 { return Delivery(source: slot.source, events: events, token: token, isExpected: false) }
        }
        while let token = expected.popFirst() {
            guard let ticket = ticket(of: token), let slot = slots[ticket] else { continue }
            return Delivery(source: slot.source, events: slot.source.epollEvents, token: token, isExpected: true)
        }
        return nil
    }

    /// Records the result of a source that reads its descriptor itself.
    mutating func note(_ finding: DescriptorSource.Finding, of delivery: Delivery) {
        guard let ticket = ticket(of: delivery.token), let pollsFirst = slots[ticket]?.pollsFirst else { return }
        switch finding {
        case .perhapsMore where pollsFirst > 0: slots[ticket]?.pollsFirst = pollsFirst - 1
        case .perhapsMore: expected.append(delivery.token)
        case .nothing where delivery.isExpected: slots[ticket]?.pollsFirst = DescriptorTable.pollsAfterMiss
        case .nothing, .something: break
        }
    }

    mutating func forgetExpected() { expected.removeAll() }

    private mutating func currentEvents(of slot: inout Slot, freshHarvest: UInt64?, poller: Poller) -> UInt32 {
        if slot.isMuted { return 0 }
        if slot.isClosed { return UInt32(POLLNVAL) }
        // An edge is reported only once: it must not be dropped, whatever has happened to it since.
        if slot.source.isEdgeTriggered { return slot.events }
        slot.deliveries += 1
        if slot.deliveries.isMultiple(of: DescriptorTable.deliveriesPerCheck), isStale(slot, poller: poller) {
            needsNewSet = true
            slot.isClosed = true
            return UInt32(POLLNVAL)
        }
        if slot.harvest == freshHarvest || slot.source.readsItself { return slot.events }
        return run_loop_poll(slot.source.descriptor, slot.source.epollEvents)
    }

    /// A closed descriptor delivers events forever if its file was duplicated (R37).
    private func isStale(_ slot: Slot, poller: Poller) -> Bool {
        poller.refresh(slot.source.descriptor, events: slot.source.epollEvents, token: slot.token) != nil
    }

    /// The ticket of the source that was registered with this token. Nil if it was removed since.
    private func ticket(of token: UInt64) -> Int? {
        let ticket = Self.ticket(in: token)
        return ticket < slots.count && slots[ticket]?.token == token ? ticket : nil
    }

    private static func ticket(in token: UInt64) -> Int { Int(token & 0xFFFF_FFFF) }

    private mutating func enqueue(_ ticket: Int) {
        guard let slot = slots[ticket], !slot.isQueued else { return }
        slots[ticket]?.isQueued = true
        queue.append(slot.token)
    }
}

extension run_loop_file {
    fileprivate static func == (left: Self, right: Self) -> Bool {
        left.device == right.device && left.inode == right.inode
    }
}
