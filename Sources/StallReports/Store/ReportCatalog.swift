import Dispatch
import Glibc
import Synchronization

/// The stalls and runs of a report directory: names, and the live records. The reports themselves are read on demand.
///
/// As of the moment it was created; otherwise a value without state. All methods may be called on any thread.
public struct ReportCatalog: Sendable {
    /// Oldest first: stalls that have a report, and those known only from the live record of a dead process.
    public let stalls: [ULID]
    /// The run records, oldest first.
    public let runs: [ULID]
    /// The processes that keep, or kept, a live record.
    public let processes: [LiveProcess]
    /// One per live record that could not be read.
    public let failures: [ReportError]

    let reader: ReportReader
    private let live: LiveRuns
    /// Reports known only from a live record.
    private let unwritten: [ULID: StallReport]

    init(_ reader: ReportReader, in directory: borrowing OpenDirectory) throws(ReportError) {
        // Before the names: a stall whose report is written by another monitor's start in the meantime is then found twice, and
        // not missed.
        let (processes, failures) = try reader.liveProcesses(in: directory)
        let names = try directory.names().compactMap { ReportFileName($0) }
        let orphans = reader.orphans(of: processes, besides: names)
        self.reader = reader
        (self.processes, self.failures) = (processes, failures)
        live = LiveRuns(processes)
        // A hostile record may contain one twice.
        unwritten = Dictionary(orphans.map { ($0.id, $0) }) { first, _ in first }
        let written = names.filter { $0.content == .stall }.map(\.id)
        stalls = (written + unwritten.keys).sorted()
        runs = names.filter { $0.content == .run }.map(\.id).sorted()
    }

    /// One report. Throws `.missingFile` if it was removed for a newer one in the meantime.
    public func report(_ id: ULID) throws(ReportError) -> StallReport {
        try report(id, in: OpenDirectory(path: reader.path))
    }

    func report(_ id: ULID, in directory: borrowing OpenDirectory) throws(ReportError) -> StallReport {
        if let report = unwritten[id] { return report }
        return try reader.load(ReportFileName(.stall, id), in: directory, live)
    }

    /// The list data of one report.
    public func outline(_ id: ULID) throws(ReportError) -> StallOutline {
        try outline(id, in: OpenDirectory(path: reader.path))
    }

    func outline(_ id: ULID, in directory: borrowing OpenDirectory) throws(ReportError) -> StallOutline {
        if let report = unwritten[id] { return StallOutline(report) }
        let name = ReportFileName(.stall, id)
        let bytes = try directory.openFile(name.description).readAll(limit: ReportReader.maximumFileSize)
        // An ongoing stall needs its process's state; an invalid report needs an error with the reason.
        if let outline = StallOutline(json: bytes), outline.id == id, outline.durationNs >= 0, outline.state != .ongoing
        {
            return outline
        }
        return StallOutline(try reader.load(name, in: directory, live) as StallReport)
    }
}

extension ReportCatalog {
    /// All run records, and the errors of those that could not be read.
    package func allRuns() throws(ReportError) -> (runs: [RunRecord], failures: [ReportError]) {
        try reader.runs(in: OpenDirectory(path: reader.path))
    }

    /// The list data of each report, oldest first, one in memory at a time.
    ///
    /// - Returns: The errors of reports that could not be read, without reports that were removed for newer ones in the
    ///   meantime.
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

    /// The number of reports after one that are searched for its repeats: as many as a directory contains by default.
    static let repeatReach = 1000

    /// Similar stalls that came after it and were only counted: from its run record, or otherwise from the fault's next report.
    /// Nil also if these cannot be read.
    ///
    /// Reads the run record, and the following reports only if the run has counted more stalls than its record still contains.
    public func repeats(of report: StallReport) -> StallReport.Repeats? {
        guard let directory = try? OpenDirectory(path: reader.path) else { return nil }
        // A report without a run id may belong to any run.
        let all = { (try? reader.runs(in: directory).0) ?? [] }
        let runs = report.run.map { [try? reader.run($0)].compactMap(\.self) } ?? all()
        let counted = runs.flatMap { $0.repeated ?? [] }.map(\.repeats)
        let found = counted.filter { $0.report == report.id }
        if let first = found.first { return found.dropFirst().reduce(first) { $0.joined(by: $1) } }
        // All counted stalls are still in the record: no report has taken any of them over.
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
    /// Whether it contains the other, which must not be empty.
    fileprivate func has(_ part: [UInt8]) -> Bool {
        guard count >= part.count else { return false }
        return (0...count - part.count).contains { start in
            self[start] == part[0] && self[start..<start + part.count].elementsEqual(part)
        }
    }
}

extension ReportReader {
    /// The contents of the directory, by name. Throws only if the directory itself cannot be read.
    public func catalog() throws(ReportError) -> ReportCatalog {
        try ReportCatalog(self, in: OpenDirectory(path: path))
    }

    /// The list data of everything in the directory.
    public struct Overview: Sendable {
        /// Oldest first, by id.
        public var stalls: [StallOutline] = []
        /// Oldest first, by id.
        public var runs: [RunRecord] = []
        /// One per file that could not be read, with its path.
        public var failures: [ReportError] = []

        /// Empty, for callers that fill it themselves.
        public init() {}

        /// From reports in memory.
        public init(_ contents: Contents) {
            (stalls, runs, failures) = (contents.reports.map { StallOutline($0) }, contents.runs, contents.failures)
        }
    }

    /// Like ``contents()``, for many reports: keeps only the list data of each.
    public func overview() throws(ReportError) -> Overview {
        let directory = try OpenDirectory(path: path)
        var overview = Overview()
        (overview.runs, overview.failures) = try runs(in: directory)
        let catalog = try ReportCatalog(self, in: directory)
        overview.stalls.reserveCapacity(catalog.stalls.count)
        var parts = Array(try catalog.outlines().reversed())
        // Each part is freed as soon as it is taken over, so that not everything exists twice.
        while let part = parts.popLast() {
            overview.stalls += part.stalls
            overview.failures += part.failures
        }
        overview.failures += catalog.failures
        return overview
    }
}

extension ReportCatalog {
    /// The number of reports for which a thread is worthwhile.
    private static let reportsPerThread = 500
    /// More threads would wait for the directory's lock in the kernel.
    private static let mostThreads = 8

    /// The list data of all stalls, in consecutive parts. If there are many, the parts are read concurrently.
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

/// Strings that many stalls have in common, each stored once.
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
