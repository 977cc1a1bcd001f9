import Foundation
import StallReports
import Testing

/// The output of `--help` for each subcommand, on a terminal of 80 columns.
@Suite("--help", .timeLimit(.minutes(10)))
struct HelpTests {
    static let subcommands = [
        "tail", "list", "faults", "diff", "top", "show", "doctor", "symbolicate", "export", "gate", "gate judge",
        "gate run", "sample", "watch", "ship",
    ]

    private func help(_ subcommand: String) throws -> [String] {
        let words = subcommand.split(separator: " ").map(String.init)
        let run = try CommandRun(arguments: words + ["--help"], environment: ["COLUMNS": "80"])
        #expect(run.status == 0 && run.errors == "")
        return run.output.components(separatedBy: "\n")
    }

    @Test("it lists every subcommand and explains each exit code", arguments: subcommands)
    func listed(_ subcommand: String) throws {
        #expect(try help("list").count > 5)
        let all = try CommandRun("--help", environment: ["COLUMNS": "80"]).output
        if !subcommand.contains(" ") { #expect(all.contains("\n  \(subcommand) ")) }
        let text = try help(subcommand).joined(separator: " ")
        #expect(text.contains("Exit code 0: ") && text.contains(" 64: wrong usage."))
    }

    @Test("no line of a list is continued at the margin", arguments: ["", "top", "export"])
    func lists(_ subcommand: String) throws {
        let lines = try help(subcommand)
        let first = try #require(lines.firstIndex { ["EXIT CODES", "KEYS", "FORMATS"].contains($0) }) + 1
        let list = lines[first...].prefix { !$0.isEmpty }
        let codes = subcommand.isEmpty ? [0, 1, 2, 3, 64, 129, 130, 131, 141, 143] : []
        for code in codes { #expect(list.contains { $0.hasPrefix("  \(code) ") }, "\(code)") }
        #expect(list.count > 4 && list.allSatisfy { $0.hasPrefix("  ") }, "\(list)")
    }

    @Test("values are named by what they are, as in --max-turn <length>, not by their option", arguments: subcommands)
    func valueNames(_ subcommand: String) throws {
        let text = try help(subcommand).joined(separator: "\n")
        for option in text.matches(of: /--?([a-z0-9-]+) <([^>]+)>/) where option.1 == option.2 {
            // These are what they are called.
            let known = ["type", "kind", "verdict", "severity", "state", "format", "fingerprint"]
            #expect(known.contains(String(option.1)), "\(option.0)")
        }
    }

    @Test("it says how old reports are removed")
    func cleaning() throws {
        let text = try CommandRun("--help").output.split(whereSeparator: \.isWhitespace).joined(separator: " ")
        #expect(text.contains("Old reports need no cleaning up: a monitor removes the oldest files"))
    }

    @Test("ship, which keeps no index, has no option for one")
    func noIndex() throws {
        let text = try help("ship").joined(separator: "\n")
        #expect(text.contains("--checkpoint") && !text.contains("--index"))
    }

    @Test(
        "the examples fit on one line each and use existing options",
        // The gate's examples are those of its subcommands.
        arguments: subcommands.filter { $0 != "gate" }
    )
    func examples(_ subcommand: String) throws {
        let lines = try help(subcommand)
        let first = try #require(lines.firstIndex(of: "EXAMPLES")) + 1
        let examples = lines[first...].prefix { !$0.isEmpty }
        let options = lines.drop { !$0.hasPrefix("USAGE:") }.joined(separator: "\n")
        #expect(!examples.isEmpty)
        for example in examples {
            // A wrapped example would continue at the margin.
            #expect(
                example.hasPrefix("  stall-monitor \(subcommand.replacing(" judge", with: ""))") && example.count <= 80,
                "\(example)"
            )
            let own = example.components(separatedBy: " | ")[0].components(separatedBy: " -- ")[0]
            for word in own.split(separator: " ") where word.hasPrefix("-") {
                let isKnown = options.contains("  \(word)") || options.contains(", \(word)")
                #expect(isKnown, "\(word) in \(example)")
            }
        }
    }
}

@Suite("An empty or missing directory", .timeLimit(.minutes(10)))
struct NoReportsTests {
    @Test(
        "an unknown command is wrong usage, and the one that may be meant is named",
        arguments: [
            ("lst", "there is no command 'lst'; did you mean 'list'?"), ("symb", "did you mean 'symbolicate'?"),
            ("frobnicate", "there is no command 'frobnicate'; 'stall-monitor --help' lists them"),
        ]
    )
    func unknown(_ word: String, _ message: String) throws {
        let run = try CommandRun(word, "reports")
        #expect(run.status == 64 && run.errors.contains(message), "\(run.errors)")
    }

    @Test("top reports that nothing is watched there; a missing directory is an error")
    func top() throws {
        let fixture = try ReportsFixture()
        try fixture.store.prepare()
        let empty = try CommandRun("top", "--once", fixture.path)
        #expect(empty.status == 0)
        #expect(empty.output.contains("0 processes watched") && empty.output.contains("No monitored process keeps a"))
        let missing = try CommandRun("top", "--once", fixture.root + "/none")
        #expect(missing.status == 1 && missing.output == "")
        #expect(missing.errors.contains("there is no such report directory"))
    }
}
