/// A destination of reports: a directory, or anything else that accepts them. Queueing, retries and the bound on memory are the
/// writer's responsibility, and the same for all sinks.
///
/// For the writer's thread only, which may block in it.
package protocol ReportSink: Sendable {
    /// Its name in messages.
    var name: String { get }

    /// Prepares it for writes.
    ///
    /// - Parameter closing: Also closes the reports that processes left unfinished when they died.
    /// - Returns: The problems that it has, although it accepts reports.
    mutating func prepare(closing: Bool) throws(ReportError) -> Set<ReportDirectory.Concern>

    /// Writes a document whole or not at all, replacing an earlier version of it.
    mutating func write(_ bytes: [UInt8], as name: ReportFileName) throws(ReportError) -> ReportDirectory.Written
}

/// A directory, with the data that is kept about it between writes.
package struct DirectorySink: ReportSink {
    private let directory: ReportDirectory
    private var memory = WriterMemory()
    /// As of the last write.
    private var isFilled = false

    package init(_ directory: ReportDirectory) { self.directory = directory }

    package var name: String { directory.path }

    package mutating func prepare(closing: Bool) throws(ReportError) -> Set<ReportDirectory.Concern> {
        try directory.prepare()
        if closing { try directory.closeTerminated() }
        return directory.exposures.union(isFilled ? [.filled] : [])
    }

    package mutating func write(_ bytes: [UInt8], as name: ReportFileName) throws(ReportError)
        -> ReportDirectory.Written
    {
        let written = try directory.write(bytes, as: name, &memory)
        isFilled = written.concerns.contains(.filled)
        return written
    }
}

/// The data that a writer keeps about its directory between writes, so that a write costs the same however many reports of
/// other processes are in it. Empty for a writer that writes once. At most about a megabyte. A value; for one thread at a time.
package struct WriterMemory: Sendable {
    /// The files that the run has written and that still exist: they are removed last.
    package var own: Set<ReportFileName>
    var lastingOwn = LastingFiles()
    var lastingOthers = LastingFiles()

    package init(own: Set<ReportFileName> = []) { self.own = own }
}

/// Files that were read in order to apply the limits, and must stay: ongoing stalls, running processes' run records, files that
/// cannot be removed.
///
/// A file that was not written again still has to stay, unless its process has died in the meantime. So a few of these are read
/// again at each write, in rotation.
struct LastingFiles: Sendable {
    /// The number of files that are remembered. Further files are only read in rotation, like those that are known.
    static let capacity = 4096
    /// The number of files that are read again at a write: of those written in the meantime, and of the others, each.
    static let readAgain = 16

    enum Standing: Hashable, Sendable {
        /// Never read.
        case new
        /// Written again since it was read.
        case changed
        /// Unchanged, or beyond the number that can be remembered.
        case known
    }

    private var versions: [ReportFileName: FileStatus] = [:]
    private var turn = 0

    /// The number of remembered files.
    var count: Int { versions.count }

    func standing(of name: ReportFileName, _ version: FileStatus) -> Standing {
        guard let known = versions[name] else { return versions.count < Self.capacity ? .new : .known }
        return known == version ? .known : .changed
    }

    mutating func remember(_ name: ReportFileName, _ version: FileStatus) {
        guard versions[name] != nil || versions.count < Self.capacity else { return }
        versions[name] = version
    }

    mutating func forget(_ name: ReportFileName) { versions[name] = nil }

    /// Keeps only files that still exist.
    mutating func forgetAll(but names: Set<ReportFileName>) {
        versions = versions.filter { names.contains($0.key) }
    }

    /// The known files whose turn it is.
    mutating func next(of known: [ReportFileName]) -> Set<ReportFileName> {
        guard !known.isEmpty else { return [] }
        let start = turn % known.count
        let count = min(Self.readAgain, known.count)
        turn = start + count
        return Set((start..<start + count).map { known[$0 % known.count] })
    }
}
