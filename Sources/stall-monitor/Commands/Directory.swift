import ArgumentParser
import StallReports

/// Reading a report directory for a subcommand: errors become lines on standard error, and exit codes.
struct Directory {
    let path: String

    func overview() throws(CommandFailure) -> ReportReader.Overview {
        try CommandFailure.wrapping { () throws(ReportError) in try ReportReader(path: path).overview() }
    }

    func catalog() throws(CommandFailure) -> ReportCatalog {
        try CommandFailure.wrapping { () throws(ReportError) in try ReportReader(path: path).catalog() }
    }

    /// Notes each file that could not be read; exit code 1 when there is one.
    static func report(_ failures: [ReportError]) throws {
        failures.forEach { Output.note($0) }
        if !failures.isEmpty { throw ExitCode.failure }
    }
}
