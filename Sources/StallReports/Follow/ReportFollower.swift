internal import Glibc

/// Tells what happens in a report directory as it happens, by inotify(7): no polling.
///
/// First everything that is there, the oldest first; then each new or changed file. The directory may appear later, go, and come
/// again. A process that dies leaves no event in the directory, and one whose stall grows notes that in its live record, so while a
/// known stall lasts, both are looked at once a second.
///
/// For one thread at a time, which owns it.
public struct ReportFollower: ~Copyable {
    /// One piece of news. A file that changed comes again whole; versions between two looks are passed over.
    public enum Event: Sendable, Hashable {
        case report(StallReport)
        /// A stall under way, longer than it was told last: by its process's live record. Its file has not changed.
        case grown(StallReport)
        case run(RunRecord)
        /// A file that cannot be read.
        case failure(ReportError)
        case directoryAppeared
        case directoryGone
    }

    /// Ends a wait from another thread.
    public let cancellation: Cancellation

    private let reader: ReportReader
    private var watch: DirectoryWatch
    private var catchUp = CatchUp()
    private var lasting = OngoingStalls()
    /// What was written before is told only if it is written again. Nil: everything is told.
    private let start: Timestamp?

    /// Throws when the path can never become a readable directory, or the system has no watch left.
    public init(
        path: String = ReportDirectory.defaultPath,
        liveness: ProcessLiveness = ProcessLiveness()
    ) throws(ReportError) {
        try self.init(path: path, liveness: liveness, tellsPast: true)
    }

    /// - Parameter tellsPast: without it, files that are there at the start are not read, however many there are, and not told. But stalls
    ///   that are under way by the live records are.
    package init(
        path: String,
        liveness: ProcessLiveness = ProcessLiveness(),
        tellsPast: Bool
    ) throws(ReportError) {
        let cancellation = try Cancellation()
        var watch = try DirectoryWatch(path: path)
        // A file system's clock is some milliseconds behind, and may be another machine's.
        let begin = Timestamp.now().advanced(byNanoseconds: -2_000_000_000)
        let isThere = try watch.arm()
        start = tellsPast ? nil : begin
        reader = ReportReader(path: path, liveness: liveness)
        self.cancellation = cancellation
        self.watch = watch
        guard isThere else { return }
        if tellsPast { note([.appeared]) } else { noteOngoing() }
    }

    private mutating func noteOngoing() {
        catchUp.tell(.directoryAppeared)
        let live = (try? reader.liveProcesses().processes) ?? []
        let stalls = live.filter { $0.status(by: reader.liveness) != .dead }.flatMap(\.record.stalls)
        catchUp.read(stalls.filter { $0.state == .ongoing }.map { ReportFileName(.stall, $0.report) })
    }

    /// The next event; nil when none came within `timeout` (nil: no limit). Throws `.cancelled` after a cancellation.
    public mutating func next(timeout: Duration? = nil) throws(ReportError) -> Event? {
        let deadline = timeout.map { ContinuousClock.now + $0 }
        while true {
            if let event = try nextKnown() { return event }
            let wake = [deadline, lasting.nextLook].compactMap { $0 }.min()
            try wait(until: wake)
            note(try watch.changes())
            if let deadline, ContinuousClock.now >= deadline { return try nextKnown() }
        }
    }

    /// Takes in a stall that was read elsewhere: while it lasts, its growth and its process's death are told.
    package mutating func note(_ report: StallReport) { lasting.note(report) }

    /// Readable when there may be news: whoever waits for several directories polls these.
    var descriptor: Int32 { watch.descriptor }

    /// When there may be news without a file; nil while no stall lasts.
    var nextLook: ContinuousClock.Instant? { lasting.nextLook }

    /// An event for which nothing must be waited.
    private mutating func nextKnown() throws(ReportError) -> Event? {
        while let step = catchUp.next() {
            switch step {
            case .tell(let event): return event
            case .read(let name): if let event = try read(name) { return event }
            case .find(let name): if let event = try read(name, writtenAfter: start) { return event }
            }
        }
        return lasting.next(reader.seenAgain)
    }

    /// Nil when the file has not changed since it was last told, is gone, or was never told and is older than is asked for.
    private mutating func read(_ name: ReportFileName, writtenAfter start: Timestamp? = nil) throws(ReportError)
        -> Event?
    {
        do throws(ReportError) {
            let directory = try OpenDirectory(path: reader.path)
            guard let status = directory.status(of: name.description) else { return nil }
            if let start, status.modified < start, !catchUp.hasTold(name) { return nil }
            guard catchUp.isNews(name, status) else { return nil }
            switch name.content {
            case .run: return .run(try reader.load(name, in: directory))
            case .stall:
                let report: StallReport = try reader.load(name, in: directory)
                lasting.note(report)
                return .report(report)
            }
        } catch let error where [.missingFile, .missingDirectory].contains(error.code) {
            return nil
        } catch {
            return .failure(error)
        }
    }

    private mutating func note(_ changes: [DirectoryWatch.Change]) {
        for change in changes {
            switch change {
            case .appeared:
                catchUp.tell(.directoryAppeared)
                catchUp.readAll(names())
            case .gone: catchUp.tell(.directoryGone)
            case .written(let text): if let name = ReportFileName(text) { catchUp.read([name]) }
            case .removed(let text): if let name = ReportFileName(text) { catchUp.forget(name) }
            case .lost: catchUp.readAll(names())
            }
        }
    }

    /// Empty when the directory went meanwhile: that is told by an event of its own.
    private func names() -> [ReportFileName] { (try? reader.names()) ?? [] }

    /// Returns at news, at `wake`, or, without harm, earlier.
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
    /// Rounded up, and never negative.
    var milliseconds: Int64 {
        let (seconds, attoseconds) = components
        let rest = (attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000
        return max(0, seconds.multipliedSaturated(by: 1000).addingSaturated(rest))
    }
}

/// What a follower has still to tell, and which version of each file it has told.
struct CatchUp {
    enum Step {
        case tell(ReportFollower.Event)
        case read(ReportFileName)
        /// One of all that are there: it may be old.
        case find(ReportFileName)
    }

    private var steps: [Step] = []
    private var position = 0
    private var told: [ReportFileName: FileStatus] = [:]

    mutating func tell(_ event: ReportFollower.Event) { steps.append(.tell(event)) }

    mutating func read(_ names: [ReportFileName]) { steps += names.map { .read($0) } }

    mutating func next() -> Step? {
        guard position < steps.count else {
            (steps, position) = ([], 0)
            return nil
        }
        position += 1
        return steps[position - 1]
    }

    /// Whether this version of the file is untold; from now on it is told.
    mutating func isNews(_ name: ReportFileName, _ status: FileStatus) -> Bool {
        told.updateValue(status, forKey: name) != status
    }

    func hasTold(_ name: ReportFileName) -> Bool { told[name] != nil }

    mutating func forget(_ name: ReportFileName) { told[name] = nil }

    /// Reads all that is there; what is not there any more is forgotten.
    mutating func readAll(_ names: [ReportFileName]) {
        let present = Set(names)
        told = told.filter { present.contains($0.key) }
        steps += names.map { .find($0) }
    }
}

/// The stalls a follower has told as ongoing: the only things of which there can be news without a file.
struct OngoingStalls {
    private var reports: [ULID: StallReport] = [:]
    private var lastLook = ContinuousClock.now
    /// Those that the present look has still to come to.
    private var due: [ULID] = []

    /// When they should be looked at next; nil while there are none.
    var nextLook: ContinuousClock.Instant? {
        if !due.isEmpty { return .now }
        return reports.isEmpty ? nil : lastLook + .seconds(1)
    }

    /// Takes in a report as it now is.
    mutating func note(_ report: StallReport) {
        if reports.isEmpty { lastLook = .now }
        reports[report.id] = report.state == .ongoing ? report : nil
    }

    /// One that has grown, or whose process died; nil when it is not yet time to look, or there is no news.
    ///
    /// - Parameter look: the report as it is known now; nil if its process closed it.
    mutating func next(_ look: (StallReport) -> StallReport?) -> ReportFollower.Event? {
        if due.isEmpty, let nextLook, nextLook <= .now {
            due = reports.keys.sorted(by: >)
            lastLook = .now
        }
        while let id = due.popLast() {
            guard let known = reports[id] else { continue }
            guard let report = look(known) else {
                // What its process closed comes with its file, if that is there still.
                reports[id] = nil
                continue
            }
            note(report)
            if report.state != .ongoing { return .report(report) }
            if report.durationNs > known.durationNs { return .grown(report) }
        }
        return nil
    }
}

/// Ends a wait of a ``ReportFollower`` from any thread: now, or the next one when none is under way. It stays cancelled.
public final class Cancellation: Sendable {
    /// Becomes readable, and stays so.
    let readEnd: Int32
    private let writeEnd: Int32

    package init() throws(ReportError) {
        var ends: [Int32] = [-1, -1]
        try systemCall(path: nil) { unsafe pipe(&ends) }
        (readEnd, writeEnd) = (ends[0], ends[1])
        for end in ends {
            _ = fcntl(end, F_SETFD, FD_CLOEXEC)
            _ = fcntl(end, F_SETFL, O_NONBLOCK)
        }
    }

    deinit {
        close(readEnd)
        close(writeEnd)
    }

    /// Whether it was: from any thread, without a wait.
    var isCancelled: Bool {
        var end = pollfd(fd: readEnd, events: Int16(POLLIN), revents: 0)
        return unsafe poll(&end, 1, 0) > 0
    }

    /// Any thread, any number of times.
    public func cancel() {
        var byte: UInt8 = 1
        // A full pipe (EAGAIN) has been cancelled 65,536 times before.
        _ = unsafe write(writeEnd, &byte, 1)
    }
}
