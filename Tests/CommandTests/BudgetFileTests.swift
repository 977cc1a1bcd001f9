import Foundation
import StallReading
import StallReports
import Testing

@Suite("gate --budget", .timeLimit(.minutes(5)))
struct BudgetFileTests {
    private let fixture: ReportsFixture

    init() throws {
        fixture = try ReportsFixture()
        try fixture.store.write(Sample.run())
    }

    private func gate(_ yaml: String) throws -> CommandRun {
        let path = fixture.root + "/stall-budget.yaml"
        try Data(yaml.utf8).write(to: URL(filePath: path))
        return try CommandRun("gate", fixture.path, "--budget", path)
    }

    @Test("the gate uses the file, also from the working directory; command-line limits apply on top")
    func judges() throws {
        var report = Sample.report()
        report.run = try #require(try ReportReader(path: fixture.path).overview().runs.first).id
        try fixture.store.write(report)
        let over = try gate("budgets: [{name: main, match: {label: main}, maxDuration: 600ms}]")
        #expect(over.status == 2)
        #expect(
            over.output.contains("  over budget: main: 1 stall too long, the longest 612ms, 600ms permitted")
        )
        #expect(try gate("budgets: [{match: {label: main}, maxStalls: 4}]").status == 0)
        let path = fixture.root + "/stall-budget.yaml"
        #expect(try CommandRun("gate", fixture.path, "--budget", path, "--max-stalls", "3").status == 2)
        #expect(try CommandRun("gate", fixture.path, directory: fixture.root).status == 0)
        let prefix = String(report.fingerprint.rawValue.prefix(9))
        let allowance = "allowances: [{fingerprint: \"\(prefix)\", reason: known, owner: me, expires: "
        #expect(try gate(allowance + "9999-12-31}]").status == 0)
        let ended = try gate(allowance + "2020-01-01}]")
        #expect(ended.status == 2 && ended.output.contains("ended on 2020-01-01"))
    }

    @Test("the budget file that 'gate --help' shows can be used")
    func help() throws {
        let help = try CommandRun("gate", "--help", environment: ["COLUMNS": "80"]).output.components(separatedBy: "\n")
        let first = try #require(help.firstIndex(of: "BUDGET FILE")) + 1
        let yaml = help[first...].prefix { !$0.isEmpty }.map { String($0.dropFirst(2)) + "\n" }.joined()
        let run = try gate(yaml)
        #expect(yaml.contains("maxStalls: 0") && run.errors.isEmpty, "\(run.errors)")
        #expect(run.output.contains("budget the shop's main loop: nothing that it is for was watched"), "\(run.output)")
    }

    @Test(
        "a mistake is reported with file, line, key and what to write: exit code 1",
        arguments: [
            ("budgets:\n  - maxStalls: -1\n", ":2: maxStalls: '-1' is not a number of stalls; write 0 or more"),
            (
                "budgets:\n  - maxBlockedPercent: 101\n",
                ":2: maxBlockedPercent: '101' is not a percentage; write 0 to 100"
            ),
            ("budgets:\n  - maxDuration: 5\n", ":2: maxDuration: '5' is not a length of time; write one like 500ms"),
            ("budgets:\n  - name: a\n    maxStals: 1\n", ":3: maxStals: unknown key; the keys here are name, "),
            (
                "budgets:\n  - {match: {verdikt: waiting}}\n",
                ":2: verdikt: unknown key; the keys here are service, label, type, verdict, fingerprint; did you mean 'verdict'?"
            ),
            ("budgets:\n  - severity: fatal\n", ":2: severity: 'fatal' is not one of error, warning, off"),
            ("budgets:\n  - name: a\n", ":2: budgets: no limit; give one of maxStalls, "),
            ("budgets:\n  - match: {verdict: starved}\n    maxTurn: 1s\n", ":3: maxTurn: turns are of a loop"),
            (
                "budgets:\n  - {name: a, maxStalls: 1}\n  - {name: a, maxStalls: 2}\n",
                ":3: budgets: 'a' is the name of a budget before it; give each"
            ),
            ("budgets: 5\n", ":1: budgets: expected a list"),
            ("allowances:\n  - fingerprint: aaaa\n", ":2: allowances: reason is missing"),
            ("version: 2\n", ":1: version: this version of stall-monitor reads version 1"),
            ("budgets: [\n", ": not YAML: "),
            (
                "budgets:\n\t- name: a\n",
                ": not YAML: 2:1: error: scanner: while scanning for the next token in line 2, column 1: "
                    + "found character that cannot start any token\n"
            ),
            (
                "a: 1\na: 2\n",
                ": not YAML: Parser: expected all keys to be unique but found the following duplicated key(s): 'a'.\n"
            ),
        ]
    )
    func mistakes(yaml: String, words: String) throws {
        let run = try gate(yaml)
        #expect(run.status == 1 && run.output == "")
        #expect(run.errors.contains("stall-budget.yaml" + words), "\(run.errors)")
    }

    @Test("the file in config is accepted and matches its schema")
    func shipped() throws {
        let config = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../config").standardized
            .path
        let check = """
            import json, sys, yaml, jsonschema
            text = yaml.load(open(sys.argv[1]), Loader=yaml.BaseLoader)
            schema = json.load(open(sys.argv[2]))
            for number in ('maxStalls', 'maxPerHour', 'maxBlockedPercent'):
                for budget in text['budgets']:
                    if number in budget: budget[number] = json.loads(budget[number])
            text['version'] = int(text['version'])
            jsonschema.validate(text, schema)
            text['budgets'][0]['maxStals'] = 1
            try: jsonschema.validate(text, schema)
            except jsonschema.ValidationError: sys.exit(0)
            sys.exit('the schema takes a key that there is not')
            """
        let files = ["\(config)/stall-budget.yaml", "\(config)/stall-budget.schema.json"]
        #expect(try CommandRun(tool: "/usr/bin/python3", ["-c", check] + files).status == 0)
        let run = try CommandRun("gate", fixture.path, "--budget", files[0])
        #expect(
            run.status == 1 && run.output.contains("budget the shop's main loop: nothing that it is for was watched")
        )
        #expect(run.errors == "")
    }
}
