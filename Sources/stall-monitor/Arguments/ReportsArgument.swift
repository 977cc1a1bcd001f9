import ArgumentParser
import StallReports

/// The directory argument that all readers share.
struct ReportsArgument: ParsableArguments {
    @Argument(
        help: ArgumentHelp("The report directory.", valueName: "dir"),
        completion: .directory
    )
    var directory: String?

    func validate() throws { try Self.refuseEmpty(directory) }

    /// A name without a letter is a variable that was not set: nothing can ever be there.
    static func refuseEmpty(_ path: String?) throws {
        if path?.isEmpty == true { throw ValidationError("the report directory's name is empty") }
    }

    /// The one rule for where reports are.
    var path: String { directory ?? ReportDirectory.defaultPath }
}
