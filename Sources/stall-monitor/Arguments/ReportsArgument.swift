import ArgumentParser
import StallReports

/// The directories that all readers share.
struct ReportsArgument: ParsableArguments {
    @Argument(
        help: ArgumentHelp(
            "Report directories, or directories that hold some, however deep.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var directories: [String] = []

    func validate() throws { try directories.forEach(Self.refuseEmpty) }

    /// A name without a letter is a variable that was not set: nothing can ever be there.
    static func refuseEmpty(_ path: String?) throws {
        if path?.isEmpty == true { throw ValidationError("the report directory's name is empty") }
    }

    /// The one rule for where reports are.
    var paths: [String] { directories.isEmpty ? [ReportDirectory.defaultPath] : directories }

    /// The report directories there, looked for now.
    var sources: ReportSources { ReportSources(paths) }
}
