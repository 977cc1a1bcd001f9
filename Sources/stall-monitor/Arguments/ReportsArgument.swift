import ArgumentParser
import StallReports

/// Where all readers find reports: directories, and for most of them collectors.
struct ReportsArgument: ParsableArguments {
    @Argument(
        help: ArgumentHelp(
            "Report directories, or directories that hold some, however deep. Or a collector's address, but for commands that follow.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var directories: [String] = []

    func validate() throws { try directories.forEach(Self.refuseEmpty) }

    /// Where reports are asked for of a collector, and nothing else.
    var onlyAddress: String? {
        directories.count == 1 && CollectorCopy.isAddress(directories[0]) ? directories[0] : nil
    }

    /// For commands that follow files.
    func refuseAddresses() throws {
        if let address = directories.first(where: CollectorCopy.isAddress) {
            throw ValidationError("'\(address)' is a collector's address: this command takes directories only")
        }
    }

    /// A name without a letter is a variable that was not set: nothing can ever be there.
    static func refuseEmpty(_ path: String?) throws {
        if path?.isEmpty == true { throw ValidationError("the report directory's name is empty") }
    }

    /// The one rule for where reports are.
    var paths: [String] { directories.isEmpty ? [ReportDirectory.defaultPath] : directories }

    /// The report directories there, looked for now.
    var sources: ReportSources { ReportSources(paths) }

    /// The same, with what collectors have of the stalls asked for.
    func sources(covering selections: StallSelection...) throws -> ReportSources {
        try ReportSources(paths, covering: selections)
    }
}
