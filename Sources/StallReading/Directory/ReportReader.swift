public import StallReports

/// Reads a report directory. A file that cannot be read never hides the others.
///
/// A stall that is ongoing in its file, but whose process is dead, is read as `terminated`; so is a run that was not stopped.
/// More recent data in the process's live record is used: how long a stall lasts or had lasted, how the process ended, and
/// stalls that it did not live to report. A value without state; all methods may be called on any thread.
public struct ReportReader: Sendable {
    /// Larger files are rejected unread: 16 MiB.
    public static let maximumFileSize = StoredDocuments.maximumFileSize

    /// The path as passed in. A relative one is resolved against the working directory of each call.
    public let path: String
    /// Determines which processes are dead, and so what is read as `terminated`.
    public let liveness: ProcessLiveness
    /// Reads the documents, one at a time.
    let documents: StoredDocuments
    /// The index of what was read before. Nil: everything is read again.
    let index: (any OutlineIndex)?

    /// Creates a reader without opening the directory. Without a path it reads the environment: see
    /// `ReportDirectory.defaultPath`.
    public init(path: String = ReportDirectory.defaultPath, liveness: ProcessLiveness = ProcessLiveness()) {
        self.init(path: path, liveness: liveness, index: nil)
    }

    /// - Parameter index: An index of this directory.
    package init(path: String, liveness: ProcessLiveness = ProcessLiveness(), index: (any OutlineIndex)?) {
        (self.path, self.liveness, self.index) = (path, liveness, index)
        documents = StoredDocuments(path: path, liveness: liveness)
    }

    /// The contents of a directory, oldest first.
    public struct Contents: Sendable {
        /// Oldest first, by id.
        public var reports: [StallReport] = []
        /// Oldest first, by id.
        public var runs: [RunRecord] = []
        /// One per file that could not be read, with its path.
        public var failures: [ReportError] = []

        /// Creates empty contents, for callers that fill them themselves.
        public init() {}
    }

    /// Everything in the directory. Throws only if the directory itself cannot be read.
    public func contents() throws(ReportError) -> Contents {
        let directory = try OpenDirectory(path: path)
        var contents = Contents()
        let listing = try listing(of: directory)
        (contents.runs, contents.failures) = runs(listing.runs, in: directory)
        let catalog = try ReportCatalog(self, in: directory, listing)
        let (reports, failures) = readable(catalog.stalls) { id throws(ReportError) in
            try catalog.report(id, in: directory)
        }
        contents.reports = reports
        contents.failures += failures + catalog.failures
        return contents
    }

    /// The names in the directory as of now.
    ///
    /// - Parameter known: An earlier listing. It is returned again if the directory is still the same.
    func listing(
        of directory: borrowing OpenDirectory,
        known: DirectoryListing? = nil
    ) throws(ReportError) -> DirectoryListing {
        if let index { return try index.listing() }
        if let known, known.isCertain, try directory.stamp() == known.stamp { return known }
        return try DirectoryListing(reading: directory)
    }

    /// Run records. They are read before the reports are listed, so that the reports counted in them are listed.
    func runs(
        _ ids: [ULID],
        in directory: borrowing OpenDirectory
    ) -> (runs: [RunRecord], failures: [ReportError]) {
        readable(ids) { id throws(ReportError) in try documents.run(id, in: directory) }
    }

    private func readable<Document>(
        _ ids: [ULID],
        _ read: (ULID) throws(ReportError) -> Document
    ) -> ([Document], [ReportError]) {
        var (documents, failures): ([Document], [ReportError]) = ([], [])
        for id in ids {
            do throws(ReportError) {
                documents.append(try read(id))
            } catch let error where error.code == .missingFile {
                // It was removed for a newer file after it was listed.
            } catch {
                failures.append(error)
            }
        }
        return (documents, failures)
    }

    /// The names of the store's files, oldest first. Their contents are not checked.
    ///
    /// - Throws: Why the directory cannot be read.
    public func names() throws(ReportError) -> [ReportFileName] {
        try documents.names()
    }

    /// One report. Of a stall that its process did not live to report, it is made from the live record.
    ///
    /// - Throws: `missingFile` if there is none, otherwise why the directory or the file cannot be read.
    public func report(_ id: ULID) throws(ReportError) -> StallReport {
        let directory = try OpenDirectory(path: path)
        do throws(ReportError) {
            return try documents.report(id, in: directory)
        } catch let error where error.code == .missingFile {
            let orphans = documents.orphans(of: try liveProcesses().processes) { _ in false }
            guard let orphan = orphans.first(where: { $0.id == id }) else { throw error }
            return orphan
        }
    }

    /// One run record.
    ///
    /// - Throws: As for ``report(_:)``.
    public func run(_ id: ULID) throws(ReportError) -> RunRecord {
        try documents.run(id, in: OpenDirectory(path: path))
    }

    /// The live records in the directory: of living processes, and of dead ones that were not cleaned up. Any thread.
    ///
    /// Throws only if the directory itself cannot be read; `failures` has one error per record that cannot be read.
    public func liveProcesses() throws(ReportError) -> (processes: [LiveProcess], failures: [ReportError]) {
        let directory = try OpenDirectory(path: path)
        return documents.liveProcesses(of: try listing(of: directory).records, in: directory)
    }
}

extension ReportReader.Contents {
    /// For each report, the similar stalls that came after it and were only counted: from the fault's next report, or from the
    /// run record while there is none.
    public var repeats: [ULID: StallReport.Repeats] { repeatsByReport(reports.lazy.compactMap(\.repeats), runs) }
}

extension ReportReader.Overview {
    /// As ``ReportReader/Contents/repeats``.
    public var repeats: [ULID: StallReport.Repeats] { repeatsByReport(stalls.lazy.compactMap(\.repeats), runs) }
}

private func repeatsByReport(
    _ reported: some Sequence<StallReport.Repeats>,
    _ runs: [RunRecord]
) -> [ULID: StallReport.Repeats] {
    var found: [ULID: StallReport.Repeats] = [:]
    for repeats in [Array(reported), runs.flatMap { $0.repeated ?? [] }.map(\.repeats)].joined() {
        guard let report = repeats.report else { continue }
        found[report] = found[report].map { $0.joined(by: repeats) } ?? repeats
    }
    return found
}

extension ReportFileName {
    /// The name of a document, from its contents.
    ///
    /// - Throws: The reason why it is neither a report nor a run record.
    package init(of json: [UInt8]) throws(ReportError) {
        do throws(ReportError) {
            self.init(.stall, try StallOutline(checking: json).id)
        } catch  where error.code == .unsupportedSchema {
            self.init(.run, try RunRecord(json: json).id)
        }
    }
}
