/// The directory that a monitor writes its reports to. Several processes may share one.
///
/// A value without state: it holds no descriptor between calls, and a directory that was removed is made again at the next
/// write. All methods may be called on any thread; they wait for the disk, so not on a loop that is watched.
public struct ReportDirectory: Hashable, Sendable {
    /// As given. A relative one goes by the working directory of each call.
    public let path: String
    /// Kept by each write of this value. Others that write to the directory keep their own.
    public let limits: Limits

    /// How much the directory may hold. What is over goes at the next write, the oldest first; stalls that last and runs that
    /// live never go. Of a monitor's own run nothing goes as long as it is within the limits itself: others' go first.
    ///
    /// Only what monitors wrote counts: regular files with their names, of the user who writes, up to
    /// ``ReportReader/maximumFileSize``. Nothing else is ever removed, and each user of a shared directory has limits of its own. Files
    /// named by a time that has not come are the first to go.
    public struct Limits: Hashable, Sendable {
        /// Stall reports: 1 to 1,000,000. What was written last stays, whatever the limits.
        public var reports: Int
        /// Run records: 1 to 1,000,000.
        public var runs: Int
        /// Reports and run records together, in bytes of the disk that they take: 1 to 1 TiB.
        public var bytes: Int

        /// 1000 reports, 100 runs and 256 MiB unless given.
        public init(reports: Int = 1000, runs: Int = 100, bytes: Int = 256 << 20) {
            (self.reports, self.runs, self.bytes) = (reports, runs, bytes)
        }
    }

    /// Touches no file. Without a path it reads the environment: see ``defaultPath``.
    public init(path: String = ReportDirectory.defaultPath, limits: Limits = Limits()) {
        (self.path, self.limits) = (path, limits)
    }

    /// Makes the directory (mode 0700) where it is missing, and removes the half-written files of processes that died.
    public func prepare() throws(ReportError) {
        try OpenDirectory.create(path: path)
        try OpenDirectory(path: path).removeAbandonedDrafts()
    }

    /// Writes a report whole or not at all (mode 0600), in the place of an earlier version of it. Then keeps the limits
    /// as well as it can: a report that was written never counts as lost. Returns its size in bytes.
    @discardableResult
    public func write(_ report: StallReport) throws(ReportError) -> Int {
        try write(report.json(), as: ReportFileName(.stall, report.id))
    }

    /// Writes a run record, as ``write(_:)-(StallReport)`` does.
    @discardableResult
    public func write(_ run: RunRecord) throws(ReportError) -> Int {
        try write(run.json(), as: ReportFileName(.run, run.id))
    }

    private func write(_ bytes: [UInt8], as name: ReportFileName) throws(ReportError) -> Int {
        var memory = WriterMemory()
        return try write(bytes, as: name, &memory).bytes
    }
}
