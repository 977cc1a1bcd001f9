import Foundation

/// The command line options.
struct Options {
    var asJSON = false
    /// Selects the workloads whose name contains it.
    var filter = ""
    /// Selects the peers whose name contains it, for example to profile one peer.
    var peer = ""
    var isQuick = false

    static let usage = """
        usage: scripts/benchmark [--quick] [--filter NAME] [--peer NAME] [--format text|json]
          --quick   a tenth of the rounds
          --filter  only workloads whose name contains NAME: \(Catalogue.all.map(\.name).joined(separator: ", "))
          --peer    only peers whose name contains NAME
        """

    init(_ arguments: [String]) {
        var rest = arguments[...]
        while let argument = rest.popFirst() {
            switch argument {
            case "--quick": isQuick = true
            case "--filter": filter = Options.value(of: argument, &rest)
            case "--peer": peer = Options.value(of: argument, &rest)
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

    /// The workload with the selected subjects; nil if none is selected.
    func choose(_ workload: Workload) -> Workload? {
        guard filter.isEmpty || workload.name.contains(filter) else { return nil }
        var chosen = workload
        chosen.subjects.removeAll { !peer.isEmpty && !$0.name.contains(peer) }
        return chosen.subjects.isEmpty ? nil : chosen
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
