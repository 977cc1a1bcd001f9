import CMonitorShims
import RunLoopKit
import StackCapture
import StallDetection
import StallReports

/// Writes the live record, on a thread that exists while there are changes to write.
struct LiveRecorder: ~Copyable {
    private let board: LiveBoard
    private let run: RunIdentity
    private let directory: String
    private let memory = MemoryCounter.current()
    private var file: LiveRecordFile?
    /// Whether a new file has to be made: there is none, or it lacks changes that could not be written.
    private var isOutdated = true
    private var places = LivePlaces(LiveRecordFile.places)
    private var status: LiveRecord.Status
    private var memoryReadAt: MonotonicInstant?
    private var retryAt: MonotonicInstant?

    init(board: LiveBoard, run: RunIdentity, directory: String) {
        (self.board, self.run, self.directory) = (board, run, directory)
        status = LiveRecord.Status(updatedAt: run.startedAt)
    }

    /// One life of the thread. Returns when there has been no news for a while, or when the board is closed. Then the record is
    /// removed, because the run record has everything.
    ///
    /// - Parameter patience: How long to wait for changes. Nil: without limit.
    mutating func work(patience: Duration?) {
        repeat {
            while let update = board.take(until: patience.map { .now + $0 }) {
                record(update)
                if update.exitStatus != nil { board.confirmExit() }
            }
            if board.leave() { return }
        } while !board.isClosed
        if let descriptor = file?.descriptor { monitor_forget_in_child(descriptor) }
        file?.remove()
    }

    private mutating func record(_ update: LiveBoard.Update) {
        takeOver(update)
        do throws(ReportError) {
            if isOutdated { try renew() } else { try write(update.changed, update.released) }
            try file?.write(status)
        } catch {
            isOutdated = true
            // Otherwise it stays open until there is a new one: a file without its lock says that the process is dead.
            if error.code == .missingFile { forgetFile() }
        }
    }

    private mutating func takeOver(_ update: LiveBoard.Update) {
        status.updatedAt = .now()
        status.lastLookMonotonicNs = update.lastLook?.nanoseconds ?? status.lastLookMonotonicNs
        (status.watched, status.exitStatus) = (update.watched, update.exitStatus)
        status.waitingReports = update.waitingReports
        // Read again, because the count before the end is compared with the one after it.
        let now = MonotonicInstant.now
        if memoryReadAt.map({ now - $0 >= .seconds(1) }) ?? true {
            memoryReadAt = now
            status.memoryKills = memory?.read()
        }
    }

    /// Makes a file with all present stalls, in the place of the outdated one. If that fails, it is tried again at a later change, but not
    /// within a second. That the disk is full is not reported here, but by the writer of the reports.
    private mutating func renew() throws(ReportError) {
        guard retryAt.map({ MonotonicInstant.now >= $0 }) ?? true else { return }
        retryAt = .now + .seconds(1)
        let writer = LiveRecord.Writer(
            host: run.host,
            service: run.service,
            process: run.process,
            startedAt: run.startedAt,
            monitorVersion: StallMonitor.version,
            memory: memory
        )
        let made = try LiveRecordFile(in: directory, run: run.id, writer: writer, status: status)
        forgetFile()
        _ = monitor_close_in_child(made.descriptor)
        file = consume made
        (places, isOutdated) = (LivePlaces(LiveRecordFile.places), false)
        try write(board.open, [])
    }

    /// Closes a file that was replaced, or that is not ours any more: it or its disk is gone, its directory was renamed, or the process
    /// closed its descriptor.
    private mutating func forgetFile() {
        if let descriptor = file?.descriptor { monitor_forget_in_child(descriptor) }
        file?.removeIfMoved()
        file = nil
    }

    private mutating func write(_ changed: [Int: LiveBoard.Entry], _ released: Set<Int>) throws(ReportError) {
        for number in released {
            if let place = places.free(number) { try file?.write(nil, to: place) }
        }
        let clock = WallClockAnchor()
        for (number, entry) in changed {
            guard let place = places.take(number) else { continue }
            try file?.write(LiveStall(entry, clock), to: place)
        }
        status.unplaced = places.unplaced.count
    }
}

/// Assigns stalls to places in the record. The lowest free place is used first, so that the used places stay together.
struct LivePlaces {
    private var places: [Int: Int] = [:]
    private var available: [Int]
    /// The stalls for which there is no place.
    private(set) var unplaced: Set<Int> = []

    init(_ range: Range<Int>) { available = range.reversed() }

    /// The stall's place. Nil when all are in use.
    mutating func take(_ number: Int) -> Int? {
        if let place = places[number] { return place }
        guard let place = available.popLast() else {
            unplaced.insert(number)
            return nil
        }
        unplaced.remove(number)
        places[number] = place
        return place
    }

    /// Frees the stall's place, and returns it.
    mutating func free(_ number: Int) -> Int? {
        unplaced.remove(number)
        guard let place = places.removeValue(forKey: number) else { return nil }
        available.append(place)
        return place
    }
}

extension LiveBoard {
    /// One stall, as of the latest look: what the record says about it.
    ///
    /// It keeps neither the stacks, which are not in the record, nor the loop. While the disk hangs it may be kept for hours, and the deinit of a
    /// loop may be the server's code, which must not run under the board's lock.
    struct Entry: Sendable {
        let report: ULID
        let rule: StallReport.Rule
        let watched: StallReport.Watched
        /// The number of the watch.
        let watch: Int
        let threadID: Int32?
        /// The process of the thread, if that is not this one.
        let processID: Int32?
        /// The number of the system call in which the thread was found.
        let systemCall: Int?
        let detectedAt: MonotonicInstant
        /// The report's.
        let clock: WallClockAnchor
        var span: StallSpan
        var seenAt: MonotonicInstant
        var state = StallState.ongoing

        init(_ stall: StallObservation) {
            (report, rule, watched, watch) = (stall.reportID, stall.reportRule, stall.watched, stall.watch.number)
            (threadID, processID) = (stall.threadID, stall.otherProcess?.identity.pid)
            systemCall = stall.stack.captured?.systemCall?.number
            (detectedAt, clock, span, seenAt) = (stall.detectedAt, stall.clock, stall.span, stall.detectedAt)
        }
    }
}

extension LiveStall {
    init(_ entry: LiveBoard.Entry, _ clock: WallClockAnchor) {
        let span = entry.span
        self.init(
            report: entry.report,
            // As far as is known, a stall that is no longer watched lasts until its process ends.
            state: entry.state == .recovered ? .recovered : .ongoing,
            rule: entry.rule,
            watched: entry.watched,
            watch: entry.watch,
            threadID: entry.threadID,
            processID: entry.processID,
            systemCall: entry.systemCall,
            // As in the report: the wall clock may have been set since, or the machine suspended.
            startedAt: entry.clock.time(of: span.earliestStart),
            startedMonotonicNs: span.earliestStart.nanoseconds,
            detectedAt: entry.clock.time(of: entry.detectedAt),
            lastSeenAt: clock.time(of: entry.seenAt),
            lastSeenMonotonicNs: entry.seenAt.nanoseconds,
            durationNs: span.length.nanoseconds,
            durationMinNs: span.shortest.nanoseconds,
            durationMaxNs: span.longest.nanoseconds
        )
    }
}
