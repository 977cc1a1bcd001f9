internal import Dispatch
internal import Glibc
internal import Synchronization

/// Which stalls and runs a report directory holds: names, and the live records. The reports themselves are read when they are asked for.
///
/// As of the moment it was made; a value without state otherwise. All methods may be called on any thread.
public struct ReportCatalog: Sendable {
    /// The oldest first: stalls that have a report, and those that only the live record of a dead process knows.
    public let stalls: [ULID]
    /// The run records, the oldest first.
    public let runs: [ULID]
    /// The processes that keep, or kept, a live record.
    public let processes: [LiveProcess]
    /// One per live record that could not be read.
    public let failures: [ReportError]

    let reader: ReportReader
    private let live: LiveRuns
    /// What only a live record knows.
    private let unwritten: [ULID: StallReport]

    init(_ reader: ReportReader, in directory: borrowing OpenDirectory) throws(ReportError) {
        // Before the names: what a start in the directory makes a report of meanwhile is then found twice, and not missed.
        let (processes, failures) = try reader.liveProcesses(in: directory)
        let names = try directory.names().compactMap { ReportFileName($0) }
        let orphans = reader.orphans(of: processes, besides: names)
        self.reader = reader
        (self.processes, self.failures) = (processes, failures)
        live = LiveRuns(processes)
        // A hostile record may know one twice.
        unwritten = Dictionary(orphans.map { ($0.id, $0) }) { first, _ in first }
        let written = names.filter { $0.content == .stall }.map(\.id)
        stalls = (written + unwritten.keys).sorted()
        runs = names.filter { $0.content == .run }.map(\.id).sorted()
    }

    /// One report. Throws `.missingFile` if it made room for a newer one meanwhile.
    public func report(_ id: ULID) throws(ReportError) -> StallReport {
        try report(id, in: OpenDirectory(path: reader.path))
    }

    func report(_ id: ULID, in directory: borrowing OpenDirectory) throws(ReportError) -> StallReport {
        if let report = unwritten[id] { return report }
        return try reader.load(ReportFileName(.stall, id), in: directory, live)
    }

    /// What lists tell of one.
    public func outline(_ id: ULID) throws(ReportError) -> StallOutline {
        try outline(id, in: OpenDirectory(path: reader.path))
    }

    func outline(_ id: ULID, in directory: borrowing OpenDirectory) throws(ReportError) -> StallOutline {
        if let report = unwritten[id] { return StallOutline(report) }
        let name = ReportFileName(.stall, id)
        let bytes = try directory.openFile(name.description).readAll(limit: ReportReader.maximumFileSize)
        // One that lasts takes what is known of its process; one that is no report takes an error that says why.
        if let outline = StallOutline(json: bytes), outline.id == id, outline.durationNs >= 0, outline.state != .ongoing
        {
            return outline
        }
        return StallOutline(try reader.load(name, in: directory, live) as StallReport)
    }
}

extension ReportCatalog {
    /// All run records, and what could not be read of them.
    package func allRuns() throws(ReportError) -> (runs: [RunRecord], failures: [ReportError]) {
        try reader.runs(in: OpenDirectory(path: reader.path))
    }

    /// What lists tell of each, the oldest first, one in memory at a time.
    ///
    /// - Returns: what could not be read. Reports that made room for newer ones meanwhile are not among it.
    package func forEachOutline(_ body: (StallOutline) -> Void) throws(ReportError) -> [ReportError] {
        try forEachOutline(stalls[...], body)
    }

    private func forEachOutline(
        _ ids: ArraySlice<ULID>,
        _ body: (StallOutline) -> Void
    ) throws(ReportError) -> [ReportError] {
        let directory = try OpenDirectory(path: reader.path)
        var failures: [ReportError] = []
        for id in ids {
            do throws(ReportError) {
                body(try outline(id, in: directory))
            } catch {
                if error.code != .missingFile { failures.append(error) }
            }
        }
        return failures
    }

    /// So many reports after one are looked at for what they tell of it: as many as a directory holds unless set otherwise.
    static let repeatReach = 1000

    /// Stalls like it that came after it and were only counted: what its run record says, or else the fault's next report. Nil also where
    /// these cannot be read.
    ///
    /// Reads the run record; the reports that came after it only where that has counted more than it still holds.
    public func repeats(of report: StallReport) -> StallReport.Repeats? {
        guard let directory = try? OpenDirectory(path: reader.path) else { return nil }
        // A report that does not say which run it is of may be of any.
        let all = { (try? reader.runs(in: directory).0) ?? [] }
        let runs = report.run.map { [try? reader.run($0)].compactMap(\.self) } ?? all()
        let counted = runs.flatMap { $0.repeated ?? [] }.map(\.repeats)
        if let found = counted.first(where: { $0.report == report.id }) { return found }
        // All that was counted is in the record still: no report has taken any of it over.
        if let run = runs.first, report.run != nil,
            counted.map({ Int64(clamping: $0.count) }).saturatingSum() == run.suppressed
        {
            return nil
        }
        let text = Array(report.id.description.utf8)
        let later = stalls.suffix(from: stalls.firstIndex { $0 > report.id } ?? stalls.endIndex)
        for id in later.prefix(Self.repeatReach) where unwritten[id] == nil {
            let name = ReportFileName(.stall, id).description
            guard let file = try? directory.openFile(name),
                let bytes = try? file.readAll(limit: ReportReader.maximumFileSize), bytes.has(text),
                let repeats = try? outline(id, in: directory).repeats, repeats.report == report.id
            else { continue }
            return repeats
        }
        return nil
    }
}

extension [UInt8] {
    /// Whether it contains the other, which is not empty.
    fileprivate func has(_ part: [UInt8]) -> Bool {
        guard count >= part.count else { return false }
        return (0...count - part.count).contains { start in
            self[start] == part[0] && self[start..<start + part.count].elementsEqual(part)
        }
    }
}

extension ReportReader {
    /// What the directory holds, by name. Throws only when the directory itself cannot be read.
    public func catalog() throws(ReportError) -> ReportCatalog {
        try ReportCatalog(self, in: OpenDirectory(path: path))
    }

    /// What lists tell of everything in the directory.
    public struct Overview: Sendable {
        /// The oldest first, by their ids.
        public var stalls: [StallOutline] = []
        /// The oldest first, by their ids.
        public var runs: [RunRecord] = []
        /// One per file that could not be read, with its path.
        public var failures: [ReportError] = []

        /// Empty, for callers that fill it themselves.
        public init() {}

        /// Of reports that are at hand.
        public init(_ contents: Contents) {
            (stalls, runs, failures) = (contents.reports.map { StallOutline($0) }, contents.runs, contents.failures)
        }
    }

    /// Like ``contents()``, for many reports: only what lists tell of each is kept.
    public func overview() throws(ReportError) -> Overview {
        let directory = try OpenDirectory(path: path)
        var overview = Overview()
        (overview.runs, overview.failures) = try runs(in: directory)
        let catalog = try ReportCatalog(self, in: directory)
        overview.stalls.reserveCapacity(catalog.stalls.count)
        var parts = Array(try catalog.outlines().reversed())
        // Each is given up as soon as it is taken over: there are not two of everything.
        while let part = parts.popLast() {
            overview.stalls += part.stalls
            overview.failures += part.failures
        }
        overview.failures += catalog.failures
        return overview
    }
}

extension ReportCatalog {
    /// So many reports are worth a thread.
    private static let reportsPerThread = 500
    /// More threads would wait for the directory's lock in the kernel.
    private static let mostThreads = 8

    /// What lists tell of all stalls, in parts that follow each other. Of many the parts are read at the same time.
    fileprivate func outlines() throws(ReportError) -> [ReportReader.Overview] {
        let wanted = min(
            stalls.count / Self.reportsPerThread,
            Self.mostThreads,
            Int(clamping: sysconf(Int32(_SC_NPROCESSORS_ONLN)))
        )
        let count = max(1, wanted)
        let parts = Mutex([Result<ReportReader.Overview, ReportError>](repeating: .success(.init()), count: count))
        DispatchQueue.concurrentPerform(iterations: count) { number in
            let range = stalls.count * number / count..<stalls.count * (number + 1) / count
            let part = Result { () throws(ReportError) in try outlines(range) }
            parts.withLock { $0[number] = part }
        }
        var found: [ReportReader.Overview] = []
        for part in parts.withLock({ $0 }) { found.append(try part.get()) }
        return found
    }

    private func outlines(_ range: Range<Int>) throws(ReportError) -> ReportReader.Overview {
        var part = ReportReader.Overview()
        part.stalls.reserveCapacity(range.count)
        var texts = SharedTexts()
        part.failures = try forEachOutline(stalls[range]) { part.stalls.append(texts.shared($0)) }
        return part
    }
}

/// Texts that many stalls have in common, each kept once.
private struct SharedTexts {
    private var texts: Set<String> = []

    mutating func shared(_ outline: StallOutline) -> StallOutline {
        var outline = outline
        share(&outline.label)
        share(&outline.host)
        share(&outline.service)
        share(&outline.release)
        share(&outline.culpritName)
        share(&outline.stackError)
        share(&outline.culprit)
        return outline
    }

    private mutating func share(_ culprit: inout StallReport.Culprit?) {
        guard var known = culprit else { return }
        share(&known.function)
        share(&known.symbol)
        share(&known.module)
        share(&known.file)
        culprit = known
    }

    private mutating func share(_ text: inout String) { text = texts.insert(text).memberAfterInsert }

    private mutating func share(_ text: inout String?) { text = text.map { texts.insert($0).memberAfterInsert } }
}
