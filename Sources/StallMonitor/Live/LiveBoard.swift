import CMonitorShims
import Locking
import RunLoopKit
import StallDetection
import StallReports
import Synchronization

/// The ongoing stalls, passed from the watchdog to the recorder, which keeps them in a file that outlives the process.
///
/// The watchdog only takes a lock while a few words are copied, and posts a semaphore. A disk that does not answer blocks the
/// recorder, not the watchdog.
final class LiveBoard: Sendable {
    /// What the recorder takes at a time.
    struct Update: Sendable {
        /// The stalls that changed.
        var changed: [Int: Entry] = [:]
        /// Stalls whose reports are finished, so that they need not be kept.
        var released: Set<Int> = []
        var lastLook: MonotonicInstant?
        var watched = 0
        var waitingReports = 0
        var exitStatus: Int32?
    }

    private struct Contents {
        var update = Update()
        var open: [Int: Entry] = [:]
        /// Stalls that have ended and whose reports are not finished, oldest first.
        var ended: [Int] = []
        /// The highest number of a stall, and the highest of those that the recorder has got.
        var (latest, passed) = (0, 0)
        var hasUpdate = true
        var isClosed = false
        /// Whether the recorder's thread stays although there is nothing to write.
        var stays = false
        /// The body of the recorder's thread, once there is a record to keep.
        var recording: (@Sendable () -> Void)?

        mutating func update(
            _ number: Int,
            _ span: StallSpan,
            at time: MonotonicInstant,
            as state: StallState = .ongoing
        ) {
            guard var entry = open[number] else { return }
            (entry.span, entry.seenAt, entry.state) = (span, time, state)
            open[number] = entry
            update.changed[number] = entry
            if state != .ongoing { ended.append(number) }
            // A reporter that hangs finishes none of them, and never gets the notices that were dropped.
            if ended.count > LiveBoard.endedLimit { release(ended[0]) }
        }

        mutating func takeUpdate(exitStatus: Int32?) -> Update {
            update.exitStatus = exitStatus
            defer { (update.changed, update.released) = ([:], []) }
            (passed, hasUpdate) = (latest, false)
            return update
        }

        mutating func release(_ number: Int) {
            ended.removeAll { $0 == number }
            guard open.removeValue(forKey: number) != nil else { return }
            update.changed[number] = nil
            // While the disk hangs, the recorder takes nothing: it never hears of most stalls.
            if number <= passed { update.released.insert(number) }
        }
    }

    /// How many ended stalls without a finished report are kept: the newest. The record has as much room again for ongoing ones.
    static let endedLimit = LiveRecordFile.places.count / 2

    private let contents = ForkSafeMutex(Contents())
    private let arrival = TickSemaphore()
    private let stamped = TickSemaphore()
    /// The argument of exit(3); `noExit` before. It is not under the lock: the thread that ends the process may have interrupted
    /// the lock's holder.
    private let exitStatus = Atomic<Int64>(LiveBoard.noExit)
    private static let noExit = Int64.min
    /// The recorder's thread, which exists while there are changes to write.
    let thread = ThreadOnDemand(name: "stall-recorder")
    /// Wakes a thread that always exists, so that it calls ``serveExit()``: the caller of exit(3) cannot start a thread itself.
    private let standIn: TickSemaphore?
    /// Whether the recorder is idle: it waits for news, or for a processor to take them.
    private let isAtRest = Atomic<Bool>(true)

    /// - Parameter standIn: the semaphore of the thread that calls ``serveExit()``.
    init(standIn: TickSemaphore? = nil) { self.standIn = standIn }

    /// From now on a thread runs this whenever there are changes.
    func record(by recording: @escaping @Sendable () -> Void) {
        contents.withLock { $0.recording = recording }
        thread.demand(recording)
    }

    // MARK: The watchdog's

    func begin(_ observation: StallObservation) {
        let (number, entry) = (observation.number, Entry(observation))
        change { contents in
            contents.latest = max(contents.latest, number)
            contents.open[number] = entry
            contents.update.changed[number] = entry
        }
    }

    /// Notes that the stall was seen to continue.
    func see(_ number: Int, _ span: StallSpan, at time: MonotonicInstant) {
        change { $0.update(number, span, at: time) }
    }

    /// Notes that the stall is over, or no longer watched.
    func end(_ number: Int, _ span: StallSpan, as state: StallState) {
        change { $0.update(number, span, at: span.latestEnd, as: state) }
    }

    /// Sets how many loops are watched, and when they were last looked at. Recorded with the next change.
    func note(watched: Int, lastLook: MonotonicInstant) {
        contents.withLock { ($0.update.watched, $0.update.lastLook) = (watched, lastLook) }
    }

    /// Sets how many loops are watched.
    func note(watched: Int) { change { $0.update.watched = watched } }

    /// Makes the recorder write even if nothing has changed.
    func refresh() { change { _ in } }

    // MARK: The reporter's

    /// Sets how many reports wait for the disk. Wakes the recorder when the number changes.
    func note(waiting count: Int) {
        guard contents.withLock({ $0.update.waitingReports != count }) else { return }
        change { $0.update.waitingReports = count }
    }

    /// Releases a stall whose report is finished.
    func release(_ number: Int) {
        change { $0.release(number) }
    }

    // MARK: The thread that ends the process

    /// Records that the process ends by exit(3). Takes no lock: the caller may be a signal handler of the host.
    func noteExit(_ status: Int32) {
        exitStatus.store(Int64(status), ordering: .releasing)
        arrival.signal()
        standIn?.signal()
    }

    /// Starts the recorder's thread if an exit was noted. Called on the thread that ``init(standIn:)`` names, each time it wakes.
    func serveExit() {
        if exitStatus.load(ordering: .acquiring) != LiveBoard.noExit { demandThread() }
    }

    /// Waits until the record is written: at most until the first deadline, or until the second if the recorder has not even
    /// started, which is not the disk's fault.
    func awaitExit(by deadline: MonotonicInstant, unlessStarvedBy latest: MonotonicInstant) {
        if stamped.wait(until: deadline) || !isAtRest.load(ordering: .acquiring) { return }
        _ = stamped.wait(until: latest)
    }

    /// Makes the recorder's thread stay from now on, because nothing calls ``serveExit()`` any more.
    func stay() { change { $0.stays = true } }

    /// Lets the recorder end and its record be removed.
    func close() {
        change { $0.isClosed = true }
        contents.withLock { $0.recording = nil }
    }

    // MARK: The recorder's

    /// Waits for changes. Nil at the deadline unless the thread stays, and once the board is closed.
    func take(until deadline: MonotonicInstant? = nil) -> Update? {
        while true {
            switch takeNews() {
            case .closed: return nil
            case .update(let update): return update
            case .nothing(let stays):
                isAtRest.store(true, ordering: .releasing)
                guard arrival.wait(until: stays ? nil : deadline) else { return nil }
                isAtRest.store(false, ordering: .releasing)
            }
        }
    }

    private enum News {
        /// Changes, or an exit.
        case update(Update)
        /// - Parameter stays: Whether the thread waits for the next change, however long that takes.
        case nothing(stays: Bool)
        case closed
    }

    /// What there is for the recorder since the last call.
    private func takeNews() -> News {
        let exit = Int32(exactly: exitStatus.load(ordering: .acquiring))
        return contents.withLock { contents in
            if contents.isClosed { return .closed }
            guard contents.hasUpdate || contents.update.exitStatus != exit else {
                return .nothing(stays: contents.stays)
            }
            return .update(contents.takeUpdate(exitStatus: exit))
        }
    }

    var isClosed: Bool { contents.withLock { $0.isClosed } }

    /// Ends the recorder's thread if there is nothing to write. Returns whether it must end.
    func leave() -> Bool {
        thread.leave {
            let exit = Int32(exactly: exitStatus.load(ordering: .acquiring))
            return contents.withLock { !$0.hasUpdate && !$0.isClosed && $0.update.exitStatus == exit }
        }
    }

    /// All ongoing stalls, for a record that must be made again.
    var open: [Int: Entry] {
        contents.withLock { contents in
            contents.passed = contents.latest
            return contents.open
        }
    }

    /// Confirms that the exit is recorded.
    func confirmExit() { stamped.signal() }

    private func change(_ body: (inout sending Contents) -> Void) {
        let hadUpdate = contents.withLock { contents in
            if contents.isClosed { return true }
            defer { contents.hasUpdate = true }
            body(&contents)
            return contents.hasUpdate
        }
        demandThread()
        if !hadUpdate { arrival.signal() }
    }

    private func demandThread() {
        if let recording = contents.withLock({ $0.recording }) { thread.demand(recording) }
    }
}

/// The boards to be informed when the process calls exit(3), so that a normal end is distinguished from a crash.
enum ExitNotes {
    /// A fork's child inherits its parent's boards, which have no recorder there.
    private static let boards = ForkSafeMutex<[(board: LiveBoard, generation: ForkGeneration)]>([])

    static func add(_ board: LiveBoard) {
        boards.withLock { $0.append((board, .current)) }
        _ = monitor_on_exit { status in ExitNotes.note(status) }
    }

    static func remove(_ board: LiveBoard) {
        boards.withLock { $0.removeAll { $0.board === board } }
    }

    /// Called on the thread that ends the process. Waits at most 50 ms for a slow disk, and at most a second if the recorder gets
    /// no processor; a record that is not written by then is incomplete. This thread does not write the record itself: a disk
    /// that does not answer would block it forever.
    private static func note(_ status: Int32) {
        let now = MonotonicInstant.now
        let own = boards.withLockIfAvailable { boards in boards.filter { $0.generation.isCurrent }.map(\.board) } ?? []
        for board in own { board.noteExit(status) }
        for board in own { board.awaitExit(by: now + .milliseconds(50), unlessStarvedBy: now + .seconds(1)) }
    }
}
