import CTrials
import Foundation

/// Captures under trial: each part prints what it counted and measured, and fails by counts, never by wall times.
@main
struct CaptureTrials {
    static func main() async {
        trial_buffer_lines()
        guard let part = Part(CommandLine.arguments) else {
            print(
                "usage: capture-trials \(Part.Name.allCases.map(\.rawValue).joined(separator: "|")) [--short] [NAME...]"
            )
            exit(64)
        }
        if part.name == .exact { await Exact.runBeside(part) }
        var findings = Findings(part: part.name.rawValue)
        switch part.name {
        case .invisible: Invisible(part).run(&findings)
        case .race: Race(part).run(&findings)
        case .pause: Pause(part).run(&findings)
        case .cost: Cost(part).run(&findings)
        case .storm: Storm(part).run(&findings)
        case .steps: Steps(part).run(&findings)
        case .untabled: Untabled(part).run(&findings)
        case .exact: break
        case .stand: Stand.run()
        }
        findings.conclude()
    }
}

/// Which part to run, and how much of it.
struct Part {
    enum Name: String, CaseIterable {
        case invisible, race, pause, cost, storm, steps, untabled, exact
        /// Only to be looked at.
        case stand
    }

    var name: Name
    /// As much as a test suite has time for.
    var isShort: Bool
    var isVerbose: Bool
    /// Exact: eu-stack instead of gdb.
    var asksSecondWitness: Bool
    /// What to run of it; all if empty.
    var selected: [String]

    init?(_ arguments: [String]) {
        let words = arguments.dropFirst().filter { !$0.hasPrefix("--") }
        guard let name = words.first.flatMap(Name.init) else { return nil }
        self.name = name
        isShort = arguments.contains("--short")
        isVerbose = arguments.contains("--verbose")
        asksSecondWitness = arguments.contains("--eu-stack")
        selected = Array(words.dropFirst())
    }

    func includes(_ name: String) -> Bool { selected.isEmpty || selected.contains(name) }
}
