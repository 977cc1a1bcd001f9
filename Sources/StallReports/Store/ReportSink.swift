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
