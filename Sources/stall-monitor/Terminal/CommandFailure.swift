import StallReports

/// Why a subcommand could not do it: one line for standard error, and exit code 1.
struct CommandFailure: Error, Hashable, CustomStringConvertible {
    let message: String

    init(_ message: String) { self.message = VisibleText.of(message, limit: 2000) }

    /// A long path is cut, so that the reason behind it is seen.
    init(_ error: ReportError) {
        self.init((error.path.map { VisibleText.of($0, limit: 500) + ": " } ?? "") + error.description)
    }

    /// Does something with a report directory; its error becomes a line for a person.
    static func wrapping<Result: ~Copyable>(
        _ work: () throws(ReportError) -> Result
    ) throws(CommandFailure) -> Result {
        do throws(ReportError) {
            return try work()
        } catch {
            throw CommandFailure(error)
        }
    }

    var description: String { message }
}
