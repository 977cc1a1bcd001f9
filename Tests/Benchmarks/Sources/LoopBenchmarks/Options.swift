import Foundation

/// What the command line asks for.
struct Options {
    var asJSON = false
    /// Workloads whose name contains it.
    var filter = ""
    var isQuick = false

    static let usage = """
        usage: scripts/benchmark [--quick] [--filter NAME] [--format text|json]
          --quick   a tenth of the rounds
          --filter  only workloads whose name contains NAME: \(Catalogue.all.map(\.name).joined(separator: ", "))
        """

    init(_ arguments: [String]) {
        var rest = arguments[...]
        while let argument = rest.popFirst() {
            switch argument {
            case "--quick": isQuick = true
            case "--filter": filter = Options.value(of: argument, &rest)
            case "--format":
                switch Options.value(of: argument, &rest) {
                case "json": asJSON = true
                case "text": asJSON = false
                default: Options.end()
                }
            default: Options.end()
            }
        }
    }

    private static func value(of argument: String, _ rest: inout ArraySlice<String>) -> String {
        guard let value = rest.popFirst() else { end() }
        return value
    }

    private static func end() -> Never {
        FileHandle.standardError.write(Data((usage + "\n").utf8))
        exit(64)
    }
}
