public import StallReports

/// The stalls and runs of a report directory: names, and the live records. The reports themselves are read on demand.
///
/// It shows the directory as of its creation, and has no other state. All methods may be called on any thread.
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
    /// By run: one is looked up for each ongoing report, and there may be many.
    private let live: [ULID: LiveProcess]
    /// Reports known only from a live record.
    private let unwritten: [ULID: StallReport]

    /// - Parameter known: An earlier listing of the directory.
    init(
        _ reader: ReportReader,
        in directory: borrowing OpenDirectory,
        _ known: DirectoryListing? = nil
    ) throws(ReportError) {
        let before = try reader.listing(of: directory, known: known)
        // The live records are read before the names: if another monitor's start writes a stall's report in the meantime, the
        // stall is found twice rather than missed.
        let (processes, failures) = reader.documents.liveProcesses(of: before.records, in: directory)
        let listing = try reader.listing(of: directory, known: before)
        let orphans = reader.documents.orphans(of: processes) { listing.stalls.hasSorted($0) }
        self.reader = reader
        (self.processes, self.failures) = (processes, failures)
        live = Dictionary(processes.map { ($0.record.run, $0) }) { first, _ in first }
        // A hostile record may contain one twice.
        unwritten = Dictionary(orphans.map { ($0.id, $0) }) { first, _ in first }
        stalls = unwritten.isEmpty ? listing.stalls : (listing.stalls + unwritten.keys).sorted()
        runs = listing.runs
    }

    /// One report. Throws `.missingFile` if it was removed for a newer one in the meantime.
    public func report(_ id: ULID) throws(ReportError) -> StallReport {
        try report(id, in: OpenDirectory(path: reader.path))
    }

    func report(_ id: ULID, in directory: borrowing OpenDirectory) throws(ReportError) -> StallReport {
        if let report = unwritten[id] { return report }
        return try reader.documents.report(id, in: directory, live)
    }

    /// The list data of one report. Throws as ``report(_:)`` does.
    public func outline(_ id: ULID) throws(ReportError) -> StallOutline {
        try readOutline(id, in: OpenDirectory(path: reader.path)).outline
    }

    func readOutline(_ id: ULID, in directory: borrowing OpenDirectory) throws(ReportError) -> ReadOutline {
        if let report = unwritten[id] { return ReadOutline(outline: StallOutline(report)) }
        let name = ReportFileName(.stall, id)
        let file = try directory.openFile(name.description)
        let version = try file.status()
        let bytes = try file.readAll(limit: ReportReader.maximumFileSize)
        // An ongoing stall needs its process's state; an invalid report needs an error with the reason.
        if let outline = StallOutline(json: bytes), outline.id == id, outline.durationNs >= 0, outline.state != .ongoing
        {
            return ReadOutline(outline: outline, version: version)
        }
        return ReadOutline(outline: StallOutline(try reader.documents.report(id, in: directory, live)))
    }
}

extension ReportCatalog {
    /// All run records, and the errors of those that could not be read.
    package func allRuns() throws(ReportError) -> (runs: [RunRecord], failures: [ReportError]) {
        try reader.runs(runs, in: OpenDirectory(path: reader.path))
    }

    /// The number of reports after one that are searched for its repeats: as many as a directory contains by default.
    static let repeatReach = 1000

    /// Similar stalls that came after it and were only counted: from its run record, otherwise from the fault's next report. Nil
    /// also if these cannot be read.
    ///
    /// Reads the run record, and the following reports only if the run has counted more stalls than its record still contains.
    public func repeats(of report: StallReport) -> StallReport.Repeats? {
        guard let directory = try? OpenDirectory(path: reader.path) else { return nil }
        // A report without a run id may belong to any run.
        let all = { reader.runs(self.runs, in: directory).runs }
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
                let repeats = try? readOutline(id, in: directory).outline.repeats, repeats.report == report.id
            else { continue }
            return repeats
        }
        return nil
    }
}

extension [UInt8] {
    /// Whether it contains the other sequence, which must not be empty.
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

        /// Creates an empty overview, for callers that fill it themselves.
        public init() {}

        /// Creates an overview of reports in memory.
        public init(_ contents: Contents) {
            (stalls, runs, failures) = (contents.reports.map { StallOutline($0) }, contents.runs, contents.failures)
        }

        /// Adds what another directory, or another run, contains.
        package mutating func add(_ other: Overview) {
            stalls += other.stalls
            runs += other.runs
            failures += other.failures
        }
    }

    /// Like ``contents()``, for many reports: keeps only the list data of each. Throws only if the directory itself cannot be read.
    public func overview() throws(ReportError) -> Overview {
        let directory = try OpenDirectory(path: path)
        var overview = Overview()
        let listing = try listing(of: directory)
        (overview.runs, overview.failures) = runs(listing.runs, in: directory)
        let catalog = try ReportCatalog(self, in: directory, listing)
        let unreadable: [ReportError]
        (overview.stalls, unreadable) = try catalog.allOutlines()
        overview.failures += unreadable + catalog.failures
        return overview
    }
}
