import ArgumentParser
import StallReports

/// The directory argument that all readers share.
struct ReportsArgument: ParsableArguments {
    @Argument(
        help: ArgumentHelp("The report directory.", valueName: "dir"),
        completion: .directory
    )
    var directory: String?

    /// The one rule for where reports are.
    var path: String { directory ?? ReportDirectory.defaultPath }
}
