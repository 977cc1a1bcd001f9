import StallReports

/// The report directory as the reporter sees it: one that may be missing, full or read-only now and well again later. Confined
/// to the reporter's thread.
struct ReportShelf {
    private let directory: ReportDirectory
    private var bell: FaultBell
    /// Reports whose latest version is not on the disk.
    private var unwritten: Set<ULID> = []
    /// How many reports are missing or out of date on the disk.
    var lostWrites: Int64 { Int64(unwritten.count) }
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
        if attempt({ directory throws(ReportError) in try directory.write(report) }) {
            unwritten.remove(report.id)
            bell.mended(.reportNotWritten)
        } else {
            unwritten.insert(report.id)
        }
    }

    mutating func put(_ record: RunRecord) {
        attempt { directory throws(ReportError) in try directory.write(record) }
    }

    @discardableResult
    private mutating func attempt(_ work: (ReportDirectory) throws(ReportError) -> Int) -> Bool {
        do throws(ReportError) {
            bytesWritten += Int64(try work(directory))
            return true
        } catch {
            bell.ring(StallMonitorError(.reportNotWritten, "\(directory.path): \(error)."))
            return false
        }
    }
}
