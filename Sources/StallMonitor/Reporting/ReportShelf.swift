import StallReports

/// The report directory as the reporter sees it: one that may be missing, full or read-only now and well again later. Confined
/// to the reporter's thread.
struct ReportShelf {
    private let directory: ReportDirectory
    private var bell: FaultBell
    /// How many writes failed so far.
    private(set) var lostWrites: Int64 = 0
    private(set) var bytesWritten: Int64 = 0

    init(directory: ReportDirectory, bell: FaultBell) {
        self.directory = directory
        self.bell = bell
    }

    /// Makes the directory ready, and closes the reports that processes left unfinished when they died.
    mutating func tidy() {
        attempt { directory throws(ReportError) in
            try directory.prepare()
            try directory.closeTerminated()
            return 0
        }
    }

    mutating func put(_ report: StallReport) {
        attempt { directory throws(ReportError) in try directory.write(report) }
    }

    mutating func put(_ record: RunRecord) {
        attempt { directory throws(ReportError) in try directory.write(record) }
    }

    private mutating func attempt(_ work: (ReportDirectory) throws(ReportError) -> Int) {
        do throws(ReportError) {
            bytesWritten += Int64(try work(directory))
            bell.mended(.reportNotWritten)
        } catch {
            lostWrites += 1
            bell.ring(StallMonitorError(.reportNotWritten, errno: error.errorNumber, "\(directory.path): \(error)."))
        }
    }
}
