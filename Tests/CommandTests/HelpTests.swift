import Foundation
import Glibc
import StallReports
import Testing

@testable import stall_monitor

/// The output of `--help` for each subcommand, on a terminal of 80 columns.
@Suite("--help", .timeLimit(.minutes(10)))
struct HelpTests {
    static let subcommands = [
        "tail", "list", "faults", "runs", "diff", "top", "show", "doctor", "symbolicate", "export", "gate",
        "gate judge", "gate run", "sample", "watch", "ship",
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

    @Test("no line ends with a blank", arguments: subcommands)
    func blanks(_ subcommand: String) throws {
        let lines = try help(subcommand).filter { $0.hasSuffix(" ") }
        #expect(lines.isEmpty, "\(lines)")
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

    @Test("it says where the token for a collector comes from")
    func tokens() throws {
        let text = try CommandRun("--help").output.split(whereSeparator: \.isWhitespace).joined(separator: " ")
        #expect(text.contains("the token in $STALL_MONITOR_TOKEN or in the file that $STALL_MONITOR_TOKEN_FILE names"))
    }

    @Test("it says whether --warm-up or a configuration file decides")
    func warmUp() throws {
        let text = try help("gate run").joined(separator: " ").split(separator: " ").joined(separator: " ")
        #expect(text.contains("replaces a 'startupGraceMilliseconds' of their configuration file, also a longer one"))
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

    @Test(
        "a misspelt command of the gate or of help is wrong usage, and not taken for a directory",
        arguments: [
            (["gate", "jduge", "."], "there is no command 'gate jduge'; did you mean 'gate judge'?"),
            (["gate", "rnu", "--", "true"], "there is no command 'gate rnu'; did you mean 'gate run'?"),
            (["gate", "help"], "there is no command 'gate help'; 'stall-monitor gate --help' lists them"),
            (["help", "lsit"], "there is no command 'lsit'; did you mean 'list'?"),
            (
                ["gate", "baseline", "recrod"],
                "there is no command 'gate baseline recrod'; did you mean 'gate baseline record'?"
            ),
        ]
    )
    func misspelt(_ words: [String], _ message: String) throws {
        let run = try CommandRun(arguments: words, directory: "/")
        #expect(run.status == 64 && run.errors.contains(message) && run.output == "", "\(run.errors)\(run.output)")
    }

    @Test("a directory of the gate is not taken for a command, though it is named nearly like one")
    func similarDirectory() throws {
        let fixture = try ReportsFixture()
        for (directory, place) in [("runs", fixture.root), ("out", "/"), ("r1", "/")] {
            if place != "/" {
                try FileManager.default.createDirectory(atPath: "\(place)/runs", withIntermediateDirectories: true)
            }
            let run = try CommandRun("gate", directory, directory: place)
            #expect(run.status == 1 && run.output.contains("cannot judge"), "\(run.errors)\(run.output)")
        }
    }

    @Test(
        "an unknown option: what may be meant is named, and nothing that is merely the least different",
        arguments: [
            (["list", "--sinse", "1h"], "Unknown option '--sinse'; did you mean '--since'?\n"),
            (["list", "-service", "shop"], "Unknown option '-service'; did you mean '--service'?\n"),
            (["list", "--json"], "Unknown option '--json'; did you mean '--format json'?\n"),
            (["gate", "--json"], "Unknown option '--json'; did you mean '--format json'?\n"),
            (["sample", "--pid", "1"], "Unknown option '--pid'; did you mean '<pid>'?\n"),
            (["list", "-5"], "Unknown option '-5'; did you mean '-n 5'?\n"),
            (["list", "--max-stalls", "3"], "Unknown option '--max-stalls'; 'gate judge' and others have it\n"),
            (["top", "--live"], "Unknown option '--live'\nUsage: stall-monitor top "),
            (["--versio"], "Unknown option '--versio'; did you mean '--version'?\n"),
            // The parser has another message for these.
            (["export", "--frmat", "csv", "reports"], "Unknown option '--frmat'; did you mean '--format'?\nUsage:"),
            (["watch", "12", "--report", "reports"], "Unknown option '--report'; did you mean '--reports'?\nUsage:"),
            (["watch", "-d", "reports"], "Unknown option '-d'\nUsage:"),
            (["show", "--ful"], "Unknown option '--ful'; did you mean '--full'?\nUsage:"),
            (["sample", "--nam=redis"], "Unknown option '--nam'; did you mean '--name'?\nUsage:"),
        ]
    )
    func unknownOption(_ words: [String], _ message: String) throws {
        let run = try CommandRun(arguments: words)
        #expect(run.status == 64 && run.errors.contains(message), "\(run.errors)")
        #expect(run.errors.contains("\nUsage: stall-monitor") && run.errors.hasSuffix("for more information.\n"))
    }

    @Test(
        "what a terminal would interpret in an argument is shown by its number",
        arguments: [
            ["list", "--format", "\u{1B}[31m\u{202E}"], ["list", "--\u{1B}[31m\u{202E}"],
            ["symbolicate", "a", "\u{1B}[31m\u{202E}"], ["watch", "\u{1B}[31m\u{202E}"],
        ]
    )
    func controlCharacters(words: [String]) throws {
        let run = try CommandRun(arguments: words)
        #expect(run.status == 64 && run.errors.contains(#"\u{1B}[31m\u{202E}"#), "\(run.errors)")
        #expect(!run.errors.unicodeScalars.contains { ["\u{1B}", "\u{202E}"].contains($0) })
    }

    @Test(
        "an unknown option behind another mistake, and an option's value that looks like one, do not hide that mistake",
        arguments: [
            (["watch", "node", "--inspect", "server.js"], "'node' is not the number of a process"),
            (["watch", "--threshold", "-5m", "1"], "'-5m' is invalid for '--threshold"),
            (["list", "--since", "noon-ish", "--sinse", "1h"], "'noon-ish' is invalid for '--since"),
        ]
    )
    func earlierMistake(_ words: [String], _ message: String) throws {
        let run = try CommandRun(arguments: words)
        #expect(run.status == 64 && run.errors.contains(message), "\(run.errors)")
        #expect(!run.errors.contains("Unknown option"), "\(run.errors)")
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

@Suite("Manual pages", .timeLimit(.minutes(5)))
struct ManPageTests {
    private static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().path

    private func pages(in folder: String) throws -> [String] {
        let make =
            "'\(CommandRun.executable.path)' --experimental-dump-help | python3 '\(Self.root)/config/man/pages.py' '\(folder)' 1"
        let run = try CommandRun(tool: "/bin/sh", ["-c", make])
        #expect(run.status == 0, "\(run.errors)")
        return run.output.split(separator: "\n").map(String.init)
    }

    @Test("each subcommand has one, with its options, examples and exit codes")
    func complete() throws {
        let fixture = try ReportsFixture()
        let pages = try pages(in: fixture.root)
        for subcommand in HelpTests.subcommands where !subcommand.contains(" ") {
            let page = fixture.root + "/stall-monitor-\(subcommand).1"
            #expect(pages.contains(page))
            let text = try String(contentsOfFile: page, encoding: .utf8)
            for part in [".SH NAME\n", ".SH EXIT STATUS\nExit code 0", ".SH \"EXAMPLES\"\n"] {
                #expect(text.contains(part), "\(subcommand): \(part)")
            }
        }
        let show = try String(contentsOfFile: fixture.root + "/stall-monitor-show.1", encoding: .utf8)
        #expect(show.contains("\\fB\\-\\-no\\-pager\\fR\nDo not show long output"))
        #expect(show.contains("\\fB\\-\\-index\\fR, \\fB\\-\\-no\\-index\\fR\nRead each report once"))
        let gate = try String(contentsOfFile: fixture.root + "/stall-monitor-gate.1", encoding: .utf8)
        #expect(gate.contains(".SH \"GATE BASELINE RECORD\"\n") && gate.contains("\nExit code 0: recorded."))
        // The example of one stands in a part of its own, after all texts.
        #expect(gate.contains("\nA budget file is ./stall\\-budget.yaml, "))
    }

    @Test(
        "man gives no warnings",
        .enabled(if: FileManager.default.isExecutableFile(atPath: "/usr/bin/man"), "man is not installed")
    )
    func warnings() throws {
        let fixture = try ReportsFixture()
        for page in try pages(in: fixture.root) {
            let command =
                "LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings --encoding=UTF-8 --troff-device=utf8 --ditroff --local-file '\(page)' >/dev/null"
            let run = try CommandRun(tool: "/bin/sh", ["-c", command])
            #expect(run.status == 0 && run.errors.isEmpty, "\(page): \(run.errors)")
        }
    }
}

@Suite("Completion")
struct CompletionTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    /// The completions that the command offers for the last of the words, as the shells' scripts ask for them.
    private func offered(_ words: [String], for argument: [String], environment: [String: String] = [:]) throws -> Set<
        String
    > {
        let index = words.count - 1
        let asked = ["---completion"] + argument + ["\(index)", "\(words[index].count)"] + words
        let run = try CommandRun(arguments: asked, environment: environment.merging(["SAP_SHELL": "bash"]) { $1 })
        #expect(run.status == 0, "\(run.errors)")
        return Set(run.output.split(separator: "\n").map(String.init))
    }

    @Test("show completes ids, faults and 'latest' from the directory on the line, or from the default one")
    func stalls() throws {
        let report = Sample.report(id: .make())
        try fixture.store.write(report)
        let id = String(report.id.description.prefix(8))
        let fault = ShortFingerprints.prefix(of: report.fingerprint)
        let place = ["STALL_MONITOR_DIRECTORY": fixture.path]
        let argument = ["show", "--", "positional@0"]
        #expect(
            try offered(["stall-monitor", "show", ""], for: argument, environment: place) == ["latest", id, fault]
        )
        #expect(try offered(["stall-monitor", "show", "la"], for: argument, environment: place) == ["latest"])
        let named = ["stall-monitor", "show", fixture.path, String(fault.prefix(4))]
        #expect(try offered(named, for: argument) == [fault])
        #expect(
            try offered(
                ["stall-monitor", "show", ""],
                for: argument,
                environment: ["STALL_MONITOR_DIRECTORY": "/none"]
            ) == ["latest"]
        )
    }

    @Test("names are completed from the reports; a name that a shell would split is not offered")
    func names() throws {
        try fixture.store.write(Sample.report(id: .make()))
        var hostile = Sample.report(id: .make())
        hostile.host.name = "$(reboot)"
        try fixture.store.write(hostile)
        let found = try offered(
            ["stall-monitor", "list", "--host", ""],
            for: ["list", "--", "--host"],
            environment: ["STALL_MONITOR_DIRECTORY": fixture.path]
        )
        #expect(found == ["web1"])
        #expect(Completions.offered(["a b", "-f", "a\nb", "", "ok", "OK1", "ok"], "o") == ["ok", "OK1"])
    }

    @Test(
        "bash completes gate's options without the name of its default subcommand, too, and its subcommands and theirs",
        arguments: [
            (["gate", "--max-st"], "--max-stalls"), (["gate", "--aga"], "--against"),
            (["gate", "jud"], "judge"), (["gate", "judge", "--aga"], "--against"),
            (["gate", "run", "--rep"], "--repeat"),
            (["li"], "list"),
        ]
    )
    func gate(words: [String], completion: String) throws {
        let script = try CommandRun("--generate-completion-script", "bash").output
        let all = ["stall-monitor"] + words
        let ask = """
            COMP_WORDS=(\(all.joined(separator: " "))); COMP_CWORD=\(words.count); COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}
            _stall-monitor stall-monitor '\(all[words.count])' '\(all[words.count - 1])'; echo "${COMPREPLY[*]}"
            """
        let run = try CommandRun(tool: "/bin/bash", ["-c", script + "\n" + ask])
        #expect(run.output == completion + "\n", "\(run)")
    }

    @Test("gate completes all options of its default subcommand")
    func gateOptions() throws {
        func options(_ root: CommandDescription, _ words: String...) -> Set<String> {
            let named = root.command(of: words).allArguments.filter { $0.kind != "positional" }
            return Set(named.flatMap { ($0.names ?? []).map(\.dashed) })
        }
        let judge = options(try CommandDescription.read(of: StallMonitorCommand.self), "gate", "judge")
        let gate = options(try CommandDescription.read(of: CompletedCommand.self), "gate")
        #expect(judge.count > 30 && judge.subtracting(gate).isEmpty, "\(judge.subtracting(gate))")
    }

    @Test("sample completes process ids")
    func processes() throws {
        let found = try offered(["stall-monitor", "sample", ""], for: ["sample", "--", "positional@0"])
        #expect(found.contains("\(getpid())") && found.allSatisfy { Int32($0) != nil })
    }
}
