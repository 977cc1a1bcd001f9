import Foundation
import StallReports
import Testing

@testable import stall_monitor

@Suite("Command defaults from a file", .timeLimit(.minutes(5)))
struct CommandDefaultsTests {
    private let fixture: ReportsFixture
    private var file: String { fixture.root + "/config.yaml" }

    init() throws {
        fixture = try ReportsFixture()
        for label in ["main", "io"] {
            var report = Sample.report(id: .make())
            report.watched.label = label
            try fixture.store.write(report)
        }
    }

    private func run(_ text: String, _ arguments: String...) throws -> CommandRun {
        try Data(text.utf8).write(to: URL(filePath: file))
        return try CommandRun(arguments: arguments, environment: ["STALL_MONITOR_CONFIG": file])
    }

    private func count(_ run: CommandRun) -> Int {
        run.output.split(separator: "\n").count { $0.contains("shop.Cart") }
    }

    @Test("a default applies to its subcommand or to all; the command line wins")
    func apply() throws {
        let reports = "reports: \(fixture.path)\n"
        #expect(try count(run(reports, "list")) == 2)
        #expect(try count(run(reports + "list: {label: [main]}", "list")) == 1)
        #expect(try count(run(reports + "list: {label: main}", "tail")) == 2)
        #expect(try count(run(reports + "all: {label: none}\nlist: {label: main}", "list")) == 1)
        #expect(try count(run(reports + "list: {label: none}", "list", "--label", "io")) == 1)
        #expect(try count(run(reports + "list: {label: none}", "list", "--label=io")) == 1)
        #expect(try run(reports + "all: {color: always}", "list").output.contains("\u{1B}[32m"))
        #expect(try !run(reports + "all: {color: always}", "list", "--color", "never").output.contains("\u{1B}["))
        #expect(try !run(reports + "all: {no-pager: false, utc: true}", "list").output.isEmpty)
        // A directory given as an argument, or by the environment, comes before the file's.
        #expect(try run(reports, "list", fixture.root + "/none").status == 1)
        for section in ["gate judge", "gate"] {
            for words in [["gate"], ["gate", "judge"]] {
                try Data("\(section): {format: json}".utf8).write(to: URL(filePath: file))
                let run = try CommandRun(
                    arguments: words + [fixture.path],
                    environment: ["STALL_MONITOR_CONFIG": file]
                )
                #expect(run.output.hasPrefix("{") && run.output.contains("no_run"), "\(section): \(run)")
            }
        }
    }

    @Test("false switches off a flag that is on by default, and leaves another flag as it is")
    func off() throws {
        let path = fixture.root + "/flags.yaml"
        try Data("watch: {breakpoints: false, quiet: false}\nlist: {index: true, no-pager: false}".utf8)
            .write(to: URL(filePath: path))
        let description = try CommandDescription.read(of: StallMonitorCommand.self)
        func added(to words: String...) throws -> [String] {
            try CommandDefaults(words, of: description, file: path).added
        }
        #expect(try added(to: "watch", "4711") == ["--no-breakpoints"])
        #expect(try added(to: "watch", "--breakpoints", "4711") == [])
        #expect(try added(to: "list") == ["--index"])
    }

    @Test("a mistake is reported with its line, even in another subcommand's part, and is wrong usage")
    func mistakes() throws {
        let unknown = try run("list:\n  colour: always\n", "tail", fixture.path)
        #expect(unknown.status == 64 && unknown.output.isEmpty)
        #expect(
            unknown.errors.contains("config.yaml:2: colour: unknown key; the keys here are "),
            "\(unknown.errors)"
        )
        #expect(try run("lists: {}", "list", fixture.path).errors.contains("lists: unknown key"))
        let option = try run("color: always\n", "list", fixture.path)
        #expect(option.status == 64 && option.errors.contains("config.yaml:1: color: unknown key; "))
        #expect(option.errors.contains("; options stand below 'all' or a subcommand's name\n"), "\(option.errors)")
        #expect(
            try run("all: {color: purple}", "list", fixture.path).errors.contains(
                "'purple' is not one of auto, always, never"
            )
        )
        #expect(try run("list: {utc: 5}", "list", fixture.path).errors.contains("'5' is not one of true, false"))
        #expect(try run("list: [", "list", fixture.path).status == 64)
        for words in [["list", "--help"], ["help", "list"], ["top", "-h"], ["--version"]] {
            for text in ["list: [", "top: {every: fast}"] {
                try Data(text.utf8).write(to: URL(filePath: file))
                let run = try CommandRun(arguments: words, environment: ["STALL_MONITOR_CONFIG": file])
                #expect(run.status == 0 && !run.output.isEmpty, "help says what to write: \(words) \(run.errors)")
            }
        }
        let value = try run("top: {every: fast}", "top", fixture.path)
        #expect(value.status == 64 && value.errors.contains("config.yaml adds to the command line: --every fast"))
        let missing = try CommandRun(
            arguments: ["list", fixture.path],
            environment: ["STALL_MONITOR_CONFIG": "/no/such"]
        )
        #expect(missing.status == 64 && missing.errors.contains("/no/such"))
    }

    @Test("without a named file the user's own is read; a variable set to nothing means no file")
    func places() throws {
        let folder = fixture.root + "/home/.config/stall-monitor"
        try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
        try Data("list: {label: main}".utf8).write(to: URL(filePath: folder + "/config.yaml"))
        func shown(_ environment: [String: String]) throws -> Int {
            count(try CommandRun(arguments: ["list", fixture.path], environment: environment))
        }
        #expect(try shown(["HOME": fixture.root + "/home"]) == 1)
        #expect(try shown(["XDG_CONFIG_HOME": fixture.root + "/home/.config"]) == 1)
        #expect(try shown(["HOME": fixture.root + "/home", "STALL_MONITOR_CONFIG": ""]) == 2)
        #expect(try shown(["HOME": fixture.root + "/nowhere"]) == 2)
    }

    @Test("the example file has no mistakes")
    func example() throws {
        let example = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent().appending(path: "config/stall-monitor-command.yaml")
        let run = try CommandRun(
            arguments: ["list", fixture.path],
            environment: ["STALL_MONITOR_CONFIG": example.path]
        )
        #expect(run.status == 0 && count(run) == 2, "\(run.errors)")
    }
}
