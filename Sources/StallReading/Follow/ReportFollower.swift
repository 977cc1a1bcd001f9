import Glibc
public import StallReports

/// Reports the changes of a report directory as they happen, by inotify(7), without polling.
///
/// First it returns everything in the directory, oldest first; then each new or changed file. The directory may be created later, be removed,
/// and be created again. Two changes cause no event in the directory: the death of a process, and the growth of a stall, which its process
/// writes into its live record. So while a known stall is ongoing, both are checked once a second.
///
/// A file that cannot be read for a reason that may pass (the error's code is `io`: no descriptor is left, the disk has failed) is read
/// again later, first after a second, then after up to a minute.
///
/// If the path leads to another directory because one above was renamed or a link was changed, that is not noticed.
///
/// For one thread at a time, which owns it.
public struct ReportFollower: ~Copyable {
    /// One change. A file that was written again is read as a whole; versions between two reads are skipped.
    public indirect enum Event: Sendable, Hashable {
        /// A report that is new or was written again.
        case report(StallReport)
        /// An ongoing stall that has become longer, according to its process's live record. Its file has not changed.
        case grown(StallReport)
        /// A run record that is new or was written again.
        case run(RunRecord)
        /// A file that cannot be read. If that may pass, it is returned as a report or a run record once it has passed.
        case failure(ReportError)
        /// The directory exists, at the start or again.
        case directoryAppeared
        /// The directory was removed or renamed.
        case directoryGone
    }

    /// Ends a wait from another thread.
    public let cancellation: Cancellation

    private let reader: ReportReader
    private var watch: DirectoryWatch
    private var catchUp = CatchUp()
    private var ongoing = OngoingStalls()
    /// Files written before this are skipped, unless they are written again. Nil: no file is skipped.
    private let start: Timestamp?

    /// - Throws: If the path cannot become a readable directory, or no inotify watch is left.
    public init(
        path: String = ReportDirectory.defaultPath,
        liveness: ProcessLiveness = ProcessLiveness()
    ) throws(ReportError) {
        try self.init(path: path, liveness: liveness, includesPast: true)
    }

    /// - Parameters:
    ///   - includesPast: If false, files that exist at the start are neither read nor returned. Stalls that are ongoing according
    ///     to the live records are returned.
    ///   - start: The past ends here, if that is earlier than now: files that were written since are returned. Without
    ///     `includesPast` only.
    package init(
        path: String,
        liveness: ProcessLiveness = ProcessLiveness(),
        includesPast: Bool,
        from start: Timestamp? = nil
    ) throws(ReportError) {
        let cancellation = try Cancellation()
        var watch = try DirectoryWatch(path: path)
        // A file system's clock is some milliseconds behind, and may be that of another machine.
        let begin = (start ?? .now()).advanced(byNanoseconds: -2_000_000_000)
        let isThere = try watch.arm()
        let reader = ReportReader(path: path, liveness: liveness)
        self.init(reader, watch, from: includesPast ? nil : begin, cancellation)
        guard isThere else { return }
        if includesPast { note([.appeared]) } else { noteOngoing() }
        if !includesPast, start != nil { readAll() }
    }

    /// An initializer that initializes the properties itself cannot call a mutating method in Swift 6.2.
    private init(
        _ reader: ReportReader,
        _ watch: consuming DirectoryWatch,
        from start: Timestamp?,
        _ cancellation: Cancellation
    ) {
        (self.reader, self.start, self.cancellation) = (reader, start, cancellation)
        self.watch = watch
    }

    private mutating func noteOngoing() {
        catchUp.deliver(.directoryAppeared)
        let live = (try? reader.liveProcesses().processes) ?? []
        let stalls = live.filter { $0.status(by: reader.liveness) != .dead }.flatMap(\.record.stalls)
        catchUp.read(stalls.filter { $0.state == .ongoing }.map { ReportFileName(.stall, $0.report) })
    }

    /// Waits for the next event.
    ///
    /// - Parameter timeout: Nil waits without limit.
    /// - Returns: Nil after the timeout.
    /// - Throws: `.cancelled` after a cancellation.
    public mutating func next(timeout: Duration? = nil) throws(ReportError) -> Event? {
        let deadline = timeout.map { ContinuousClock.now + $0 }
        while true {
            if let event = try nextKnown() { return event }
            let wake = [deadline, nextCheck].compactMap { $0 }.min()
            try wait(until: wake)
            note(try watch.changes())
            if let deadline, ContinuousClock.now >= deadline { return try nextKnown() }
        }
    }

    /// Adds a stall that was read elsewhere: while it is ongoing, its growth and its process's death are returned as events.
    package mutating func note(_ report: StallReport) { ongoing.note(report) }

    /// Notices whether the path leads to another directory now. The kernel sends no event for that.
    mutating func checkPath() throws(ReportError) { note(try watch.changesOfPath()) }

    /// Readable when there may be an event. For callers that wait for several directories in one poll(2).
    var descriptor: Int32 { watch.descriptor }

    /// When to check the ongoing stalls, or to read something again. Nil if there is neither.
    var nextCheck: ContinuousClock.Instant? { [ongoing.nextCheck, catchUp.nextTry].compactMap { $0 }.min() }

    /// An event that is available without waiting.
    private mutating func nextKnown() throws(ReportError) -> Event? {
        if catchUp.retryIfDue() { readAll(isRepeated: true) }
        while let step = catchUp.next() {
            switch step {
            case .deliver(let event): return event
            case .read(let name, let mayBeOld, let isRepeated):
                let event = try read(name, writtenAfter: mayBeOld ? start : nil, isRepeated: isRepeated)
                if let event { return event }
            }
        }
        return ongoing.next(reader.documents.presentState(of:))
    }

    /// Nil if this version of the file was already returned, if the file is gone, or if it was written before `start` and never
    /// returned.
    ///
    /// - Parameter isRepeated: It failed before, and that was returned.
    private mutating func read(
        _ name: ReportFileName,
        writtenAfter start: Timestamp?,
        isRepeated: Bool
    ) throws(ReportError) -> Event? {
        do throws(ReportError) {
            let directory = try OpenDirectory(path: reader.path)
            guard let status = directory.status(of: name.description) else { return nil }
            if let start, status.modified < start, !catchUp.hasDelivered(name) { return nil }
            guard catchUp.isNewVersion(name, status) else { return nil }
            switch name.content {
            case .run: return .run(try reader.documents.run(name.id, in: directory))
            case .stall:
                let report = try reader.documents.report(name.id, in: directory)
                ongoing.note(report)
                return .report(report)
            }
        } catch let error where [.missingFile, .missingDirectory].contains(error.code) {
            return nil
        } catch let error where error.code == .io {
            catchUp.postpone(name, mayBeOld: start != nil)
            return isRepeated ? nil : .failure(error)
        } catch {
            return .failure(error)
        }
    }

    private mutating func note(_ changes: [DirectoryWatch.Change]) {
        for change in changes {
            switch change {
            case .appeared:
                catchUp.deliver(.directoryAppeared)
                readAll()
            case .gone: catchUp.deliver(.directoryGone)
            case .written(let text): if let name = ReportFileName(text) { catchUp.read([name]) }
            case .removed(let text): if let name = ReportFileName(text) { catchUp.forget(name) }
            case .lost: readAll()
            }
        }
    }

    private mutating func readAll(isRepeated: Bool = false) {
        do throws(ReportError) {
            catchUp.readAll(try reader.names())
        } catch let error where error.code == .io {
            catchUp.postponeListing()
            if !isRepeated { catchUp.deliver(.failure(error)) }
        } catch {
            // The directory was removed in the meantime; there is a separate event for that.
            catchUp.readAll([])
        }
    }

    /// Returns when there may be an event, at `wake`, or earlier, which is harmless.
    private func wait(until wake: ContinuousClock.Instant?) throws(ReportError) {
        var descriptors = [watch.descriptor, cancellation.readEnd].map {
            pollfd(fd: $0, events: Int16(POLLIN), revents: 0)
        }
        let limit = wake.map { Int32(clamping: ContinuousClock.now.duration(to: $0).milliseconds) } ?? -1
        try systemCall(path: nil) { unsafe poll(&descriptors, nfds_t(descriptors.count), limit) }
        if descriptors[1].revents != 0 { throw ReportError(.cancelled) }
    }
}

extension Duration {
    /// In milliseconds, rounded up, never negative.
    package var milliseconds: Int64 {
        let (seconds, attoseconds) = components
        let rest = (attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000
        return max(0, seconds.multipliedSaturated(by: 1000).addingSaturated(rest))
    }
}

/// Ends a wait of a ``ReportFollower`` from any thread: the present wait, or the next one. It stays cancelled.
public final class Cancellation: Sendable {
    /// Becomes readable on cancellation, and stays so.
    let readEnd: Int32
    private let writeEnd: Int32

    package init() throws(ReportError) { (readEnd, writeEnd) = try connectedEnds() }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    /// Whether it was cancelled. Any thread; does not wait.
    package var isCancelled: Bool {
        var end = pollfd(fd: readEnd, events: Int16(POLLIN), revents: 0)
        return unsafe poll(&end, 1, 0) > 0
    }

    /// Cancels. Any thread, any number of times.
    public func cancel() {
        var byte: UInt8 = 1
        // The write may fail because there is no room (EAGAIN). Then it was already cancelled.
        _ = unsafe write(writeEnd, &byte, 1)
    }
}

/// Two descriptors for waking a thread that waits in poll(2): what is written to the second can be read from the first. Non-blocking.
///
/// Not by pipe(2): a program that another thread starts at that moment would inherit them, and Glibc's module has no pipe2(2).
package func connectedEnds() throws(ReportError) -> (readEnd: Int32, writeEnd: Int32) {
    let type = [SOCK_STREAM, SOCK_CLOEXEC, SOCK_NONBLOCK].reduce(0) { $0 | Int32($1.rawValue) }
    var ends: [Int32] = [-1, -1]
    try systemCall(path: nil) { unsafe socketpair(AF_UNIX, type, 0, &ends) }
    return (ends[0], ends[1])
}
