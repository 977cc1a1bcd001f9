import StallReports

/// The report directory as the reporter sees it: one that may be missing, full or read-only now and well again later. Confined
/// to the reporter's thread.
struct ReportShelf {
    private let path: String
    private let limits: ReportDirectory.Limits
    private var directory: ReportDirectory?
    private var bell: FaultBell
    /// How many writes failed so far.
    private(set) var lostWrites: Int64 = 0

    init(path: String, limits: ReportDirectory.Limits, bell: FaultBell) {
        self.path = path
        self.limits = limits
        self.bell = bell
    }

    /// Closes the reports that an earlier process left unfinished.
    mutating func tidy() {
        attempt { directory throws(ReportError) in try directory.closeTerminated() }
    }

    mutating func put(_ report: StallReport) {
        attempt { directory throws(ReportError) in try directory.write(report) }
    }

    mutating func put(_ record: RunRecord) {
        attempt { directory throws(ReportError) in try directory.write(record) }
    }

    private mutating func attempt(_ work: (ReportDirectory) throws(ReportError) -> Void) {
        do throws(ReportError) {
            let directory = try directory ?? ReportDirectory(path: path, limits: limits)
            self.directory = directory
            try work(directory)
            bell.mended(.reportNotWritten)
        } catch {
            // Opened anew next time: it may have been removed, or its file system mounted again.
            directory = nil
            lostWrites += 1
            bell.ring(StallMonitorError(.reportNotWritten, errno: error.errorNumber, "\(path): \(error)."))
        }
    }
}
