import ArgumentParser
import Glibc
import Symbolication

struct SymbolFilesOption: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "A directory with symbol files or unstripped programs, under any names, or one such file.",
            valueName: "dir"
        ),
        completion: .directory
    )
    var symbols: [String] = []

    /// - Throws: for a place that is not there. Symbols that are silently not found look like a report that has none.
    func search(server: DebugInfoServer?) throws(CommandFailure) -> SymbolSearch {
        for place in symbols where unsafe access(place, R_OK) != 0 {
            throw unsafe CommandFailure("--symbols \(place): \(String(cString: strerror(errno)))")
        }
        return SymbolSearch(directories: symbols, server: server)
    }
}
