/// Where reports go: a directory, or whatever else takes them. What waits for it, is tried again and is bounded in memory is the writer's
/// business, and the same for all.
///
/// For the writer's thread alone, which may wait in it.
package protocol ReportSink: Sendable {
    /// What messages call it.
    var name: String { get }

    /// Makes it ready for what is to come.
    ///
    /// - Parameter closing: also closes the reports that processes left unfinished when they died.
    /// - Returns: what is wrong with it, though it takes reports.
    mutating func prepare(closing: Bool) throws(ReportError) -> Set<ReportDirectory.Concern>

    /// Takes a document whole or not at all, in the place of an earlier version of it.
    mutating func write(_ bytes: [UInt8], as name: ReportFileName) throws(ReportError) -> ReportDirectory.Written
}

/// A directory, with what is remembered of it from one write to the next.
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
