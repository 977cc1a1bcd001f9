import CTrials
import Foundation

/// Trials of captures: each part prints its counts and measurements, and fails because of counts, never because of wall times.
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
        case .glimpses:
            let wrong = trial_wrong_glimpses()
            findings.expect(wrong == 0, "\(wrong) times kept after a change, or given up without one")
        case .exact: break
        case .stand: Stand.run()
        }
        findings.conclude()
    }
}

/// The part to run, and its extent.
struct Part {
    enum Name: String, CaseIterable {
        case invisible, race, pause, cost, storm, steps, untabled, glimpses, exact
        /// Stands still for inspection.
        case stand
    }

    var name: Name
    /// Whether it is limited to the time of a test suite.
    var isShort: Bool
    var isVerbose: Bool
    /// Exact: eu-stack instead of gdb.
    var asksSecondWitness: Bool
    /// The selection within the part; all if empty.
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
