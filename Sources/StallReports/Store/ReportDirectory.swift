/// The directory to which a monitor writes its reports. Several processes may share one.
///
/// A value without state: it holds no descriptor between calls, and a removed directory is created again at the next
/// write. All methods may be called on any thread; they wait for the disk, so do not call them on a watched loop.
public struct ReportDirectory: Hashable, Sendable {
    /// The path as passed in. A relative one is resolved against the working directory of each call.
    public let path: String
    /// Applied by each write of this value. Other writers to the directory apply their own.
    public let limits: Limits

    /// How much the directory may contain. What exceeds this is removed at the next write, oldest first; ongoing stalls and
    /// running processes' run records are never removed. Nothing of a monitor's own run is removed while it is within the
    /// limits itself: others' files are removed first.
    ///
    /// Only files written by monitors count: regular files with their names, of the writing user, up to
    /// ``ReportReader/maximumFileSize``. Nothing else is ever removed, and each user of a shared directory has separate limits.
    /// Files named by a future time are removed first.
    public struct Limits: Hashable, Sendable {
        /// Stall reports: 1 to 1,000,000. The file written last is kept, whatever the limits.
        public var reports: Int
        /// Run records: 1 to 1,000,000.
        public var runs: Int
        /// The disk usage of reports and run records together, in bytes: 1 to 1 TiB.
        public var bytes: Int

        /// 1000 reports, 100 runs and 256 MiB by default.
        public init(reports: Int = 1000, runs: Int = 100, bytes: Int = 256 << 20) {
            (self.reports, self.runs, self.bytes) = (reports, runs, bytes)
        }
    }

    /// Accesses no file. Without a path it reads the environment: see ``defaultPath``.
    public init(path: String = ReportDirectory.defaultPath, limits: Limits = Limits()) {
        (self.path, self.limits) = (path, limits)
    }

    /// Creates the directory (mode 0700) if it is missing, and removes the incomplete files of processes that died.
    public func prepare() throws(ReportError) {
        try OpenDirectory.create(path: path)
        try OpenDirectory(path: path).removeAbandonedDrafts()
    }

    /// Writes a report whole or not at all (mode 0600), replacing an earlier version of it. Then applies the limits
    /// as far as possible: a failure of that does not make the written report count as lost. Returns its size in bytes.
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
