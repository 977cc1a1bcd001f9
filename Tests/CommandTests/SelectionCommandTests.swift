import Foundation
import StallReading
import StallReports
import Testing

@testable import stall_monitor

@Suite("Selecting on the command line", .timeLimit(.minutes(10)))
struct SelectionCommandTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    @Test("readers accept the options; a misspelt word, an invalid time and a reversed range are wrong usage")
    func options() throws {
        let report = Sample.report(id: .make())
        try fixture.store.write(report)
        for command in [["list"], ["tail"], ["show", "latest"]] {
            let yes = try CommandRun(arguments: command + [fixture.path, "--service", "SHOP", "--verdict", "waiting"])
            #expect(yes.status == 0 && yes.output.contains("shop.Cart.total()"), "\(command)")
            let no = try CommandRun(arguments: command + [fixture.path, "--service", "other"])
            #expect(!no.output.contains("shop.Cart.total()"), "\(command)")
        }
        for wrong in [["--verdict", "bloked"], ["--since", "foo"], ["--since", "1h", "--until", "2h"]] {
            let run = try CommandRun(arguments: ["list", fixture.path] + wrong)
            #expect(run.status == 64, "\(wrong) \(run.errors)")
        }
        #expect(try CommandRun("list", fixture.path, "--since", "foo").errors.contains("'yesterday'"))
        #expect(try CommandRun("list", fixture.path, "--kind", "x").errors.contains("one of blocked, repeated"))
    }

    @Test(
        "an unusable address, an empty name and a negative number are wrong usage, and the message says what to give",
        arguments: [
            (["ship", "--to", "foo"], "'foo' is not the address of a receiver: give one like https://"),
            (["ship", "--to", "ftp://example.com"], "'ftp://example.com' is not the address of a receiver"),
            (["ship", "--to", "http://localhost:99999"], "is not the address of a receiver"),
            (
                ["ship", "--collector", "localhost"],
                "'localhost' is not the address of a collector: give one like https://"
            ),
            (["list", "htp://stalls:4319"], "'htp://stalls:4319' is not the address of a collector"),
            (["faults", "http://stalls:99999"], "is not the address of a collector"),
            (["diff", "http:///", "day=today"], "is not the address of a collector"),
            (["gate", "baseline", "record", "htp://stalls"], "is not the address of a collector"),
            (["watch", "1", "--reports", "http://stalls:4319"], "'ship' sends"),
            (["list", "--service", ""], "the value of --service is empty"),
            (["gate", "--budget", ""], "the budget's name is empty"),
            (["show", "latest", "--symbols", ""], "the name of the symbols' directory is empty"),
            (["watch", "--", ""], "the command's name is empty"),
            (["gate", "run", "--", ""], "the command's name is empty"),
            (["faults", "--function", ""], "the value of --function is empty"),
            (["list", "--min-duration", "-5ms"], "'-5ms' is invalid for '--min-duration <length>'"),
            (["tail", "-n", "-3"], "-n is a number from 0"),
            (["faults", "--flame", "-n", "3"], "-n is for the table"),
            (["sample", "1", "--for", "-1s"], "'-1s' is invalid for '--for <length>'"),
            (["watch", "1", "--threshold", "-1s"], "'-1s' is invalid"),
            (["gate", "--max-duration", "-1s"], "'-1s' is invalid"),
        ]
    )
    func usage(_ arguments: [String], _ message: String) throws {
        let run = try CommandRun(arguments: arguments, directory: fixture.root)
        #expect(run.status == 64 && run.errors.contains(message), "\(run.errors)")
    }

    @Test("several directories, or one that contains some, are read as one; a missing one does not hide the others")
    func directories() throws {
        let reports = [Sample.report(id: .make()), Sample.report(id: .make())]
        for (name, report) in zip(["a", "deep/b"], reports) {
            try ReportDirectory(path: fixture.root + "/all/" + name).write(report)
        }
        let both = ["\(fixture.root)/all/a", "\(fixture.root)/all/deep/b"]
        for paths in [[fixture.root + "/all"], both, both + both] {
            let run = try CommandRun(arguments: ["list", "--format", "json"] + paths)
            let ids = run.output.split(separator: "\n").count { $0.contains("\"schema\"") }
            #expect(ids == 2 && run.status == 0, "\(paths) \(run.errors)")
        }
        let run = try CommandRun("list", both[0], fixture.root + "/none")
        #expect(run.status == 1 && run.output.contains("shop.Cart") && run.errors.contains("no such report directory"))
        #expect(try CommandRun("show", "\(reports[0].id)", fixture.root + "/all").output.contains("\(reports[0].id)"))
    }

    @Test(
        "a directory below is read at any depth, beside reports and behind a link; once, however it is reached"
    )
    func everyDirectoryBelow() throws {
        let top = fixture.root + "/fleet"
        for place in ["", "/cluster/zone/rack/host/service/run"] {
            try ReportDirectory(path: top + place).write(Sample.report(id: .make()))
        }
        let elsewhere = fixture.root + "/elsewhere"
        try ReportDirectory(path: elsewhere).write(Sample.report(id: .make()))
        for (link, target) in [("linked", elsewhere), ("again", elsewhere), ("circle", top), ("nowhere", "/none")] {
            try FileManager.default.createSymbolicLink(atPath: "\(top)/\(link)", withDestinationPath: target)
        }
        let run = try CommandRun("list", top, "--format", "json")
        #expect(
            run.output.split(separator: "\n").count { $0.contains("\"schema\"") } == 3 && run.status == 0,
            "\(run.errors)"
        )
    }

    @Test("a directory whose name is not UTF-8 is reported: below a given one, as an argument, and in the environment")
    func notUTF8() throws {
        let top = fixture.root + "/fleet"
        try ReportDirectory(path: top + "/a").write(Sample.report(id: .make()))
        let shell = ["-c", #"n=$(printf 'b\377'); mkdir "$1/$n" && shift && export ODD="$n" && exec "$@""#, "sh", top]
        let command = CommandRun.executable.path
        let below = try CommandRun(tool: "/bin/sh", shell + [command, "list", top])
        #expect(
            below.status == 1 && below.errors.contains("/b\u{FFFD}: the directory's name is not UTF-8"),
            "\(below.errors)"
        )
        #expect(below.output.contains("shop.Cart"))
        let gate = try CommandRun("gate", top, "--max-stalls", "9")
        #expect(gate.status == 1 && gate.output.contains("is not UTF-8"), "\(gate.output)")
        let given =
            #"n=$(printf 'b\377'); "$0" list "$1/$n"; a=$?; STALL_MONITOR_DIRECTORY=$n "$0" list; exit $((a + $?))"#
        let direct = try CommandRun(tool: "/bin/sh", ["-c", given, command, top])
        #expect(direct.status == 128, "\(direct.errors)")
        #expect(direct.errors.contains("the argument '\(top)/b\u{FFFD}' is not UTF-8; give a link"), "\(direct.errors)")
        #expect(direct.errors.contains("$STALL_MONITOR_DIRECTORY 'b\u{FFFD}' is not UTF-8"), "\(direct.errors)")
    }

    @Test("a command after '--' gets its arguments as they were given, UTF-8 or not")
    func rawCommand() throws {
        let script =
            #"exec "$0" watch --reports "$1" -- /bin/sh -c 'printf %s "$1" | od -An -tx1' sh "$(printf 'b\377')""#
        let run = try CommandRun(tool: "/bin/sh", ["-c", script, CommandRun.executable.path, fixture.path])
        #expect(run.status == 0 && run.output == " 62 ff\n", "\(run.output) \(run.errors)")
    }

    @Test("every reader reports a subdirectory that it cannot read, and the gate does not ignore it")
    func unreadableBelow() throws {
        let top = fixture.root + "/fleet"
        try ReportDirectory(path: top + "/a").write(Sample.report(id: .make()))
        // A name whose path is too long for any user, including root.
        let long = String(repeating: "d", count: 250)
        var places = [unsafe open(top, O_RDONLY | O_DIRECTORY)]
        for _ in 0..<17 {
            let place = try #require(places.last)
            try #require(unsafe mkdirat(place, long, 0o700) == 0)
            let next = unsafe openat(place, long, O_RDONLY | O_DIRECTORY)
            places.append(next)
        }
        // Deepest first, by descriptors: no path is short enough to name them.
        defer {
            for place in places.reversed() {
                _ = unsafe unlinkat(place, long, AT_REMOVEDIR)
                close(place)
            }
        }
        for arguments in [
            ["list"], ["faults"], ["runs"], ["tail"], ["top", "--once"], ["export", "--format", "csv"], ["doctor"],
        ] {
            let run = try CommandRun(arguments: arguments + [top])
            #expect(run.status == 1 && run.errors.contains(long), "\(arguments) \(run.status) \(run.errors)")
        }
        let run = try CommandRun("gate", top, "--max-stalls", "10")
        #expect(run.status == 1, "\(run.output)")
    }

    @Test("more directories than the limit are reported, and what was found is shown")
    func tooManyDirectories() throws {
        let top = fixture.root + "/fleet"
        try ReportDirectory(path: top).write(Sample.report(id: .make()))
        for number in 0...4096 { #expect(unsafe mkdir("\(top)/\(number)", 0o700) == 0) }
        let run = try CommandRun("list", top)
        #expect(run.status == 1 && run.output.contains("shop.Cart") && run.errors.contains("too many directories"))
    }
}
