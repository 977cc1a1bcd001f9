import Foundation
import StallReading
import StallReports
import TestSupport
import Testing

@Suite("Readers with an index", .serialized, .timeLimit(.minutes(60)))
struct IndexedReadersTests {
    private let fixture: ReportsFixture
    private var cache: [String: String] { ["XDG_CACHE_HOME": fixture.root + "/cache"] }

    init() throws {
        fixture = try ReportsFixture()
        try FileManager.default.createDirectory(atPath: fixture.path, withIntermediateDirectories: true)
    }

    @Test("each reader prints the same with and without an index, also after reports were added and removed")
    func same() throws {
        try flood(300)
        let ids = try ReportReader(path: fixture.path).catalog().stalls
        let fault = try ReportReader(path: fixture.path).catalog().outline(ids[0]).fingerprint.rawValue.dropFirst(3)
        let readers = [
            ["list"], ["list", "--sort", "duration"], ["list", "--service", "shop", "--verdict", "waiting"],
            ["list", "--fingerprint", String(fault)], ["list", "--format", "json", "--since", "20d"],
            ["faults"], ["faults", "--since", "20d", "--sort", "worst"], ["runs"], ["runs", "--by", "loop"],
            ["show", "\(ids[100])"], ["show", "latest", "--service", "shop"], ["show", String(fault)],
            ["gate", "--max-stalls", "0"], ["gate", "--max-duration", "10s", "--service", "mail"],
            ["tail", "-n", "5"], ["tail", "--since", "20d"],
            ["tail", "--since", "20d", "-n", "7", "--service", "mail"],
            ["export", "--format", "csv", "--service", "search"],
        ]
        for round in 0..<2 {
            for reader in readers { try compare(reader + [fixture.path]) }
            try compare(["diff", "service=shop", "service=mail", "--reports", fixture.path])
            try flood(10, first: 1000)
            let removed = ReportFileName(.stall, ids[1 + 10 * round])
            try FileManager.default.removeItem(atPath: "\(fixture.path)/\(removed)")
            let damaged = ReportFileName(.stall, ids[2 + 10 * round])
            try Data("{".utf8).write(to: URL(filePath: "\(fixture.path)/\(damaged)"))
        }
        #expect(!FileManager.default.fileExists(atPath: fixture.path + "/cache"))
    }

    @Test("tail --since reads through the index, also with -f")
    func tailSince() throws {
        try flood(300)
        for follow in [[], ["-f"]] {
            let place = fixture.root + "/cache\(follow.count)"
            let arguments = ["tail", "--since", "20d", "--index", "--format", "json", fixture.path] + follow
            let tail = CommandRun.process(arguments, environment: ["XDG_CACHE_HOME": place])
            let output = Pipe()
            (tail.standardOutput, tail.standardError) = (output, FileHandle.nullDevice)
            try tail.runWithSignals()
            // The first line comes after the choice.
            #expect(try output.fileHandleForReading.read(upToCount: 1)?.count == 1)
            let files = try? FileManager.default.contentsOfDirectory(atPath: place + "/stall-monitor/index")
            #expect(files?.contains { $0.hasSuffix(".sqlite") } == true, "\(arguments)")
            tail.killIfRunning()
            tail.waitUntilExit()
        }
    }

    @Test("show latest reads through the index if none of the newest stalls matches")
    func latest() throws {
        try flood(1100)
        let catalog = try ReportReader(path: fixture.path).catalog()
        var oldest = try catalog.report(catalog.stalls[0])
        oldest.watched.label = "only-here"
        let file = URL(filePath: "\(fixture.path)/\(ReportFileName(.stall, oldest.id))")
        try Data(oldest.json()).write(to: file)
        func shown(_ label: String) throws -> CommandRun {
            let arguments = ["show", "latest", "--label", label, "--index", fixture.path]
            return try CommandRun(arguments: arguments, environment: cache)
        }
        #expect(try shown("only-here").output.contains("\(oldest.id)"))
        let none = try shown("nowhere")
        #expect(none.status == 1 && none.errors.contains("no matching stalls"), "\(none.errors)")
        let files = try FileManager.default.contentsOfDirectory(atPath: fixture.root + "/cache/stall-monitor/index")
        #expect(files.contains { $0.hasSuffix(".sqlite") }, "\(files)")
    }

    @Test("the cache may be behind a symbolic link")
    func link() throws {
        try flood(3)
        let (place, link) = (fixture.root + "/place", fixture.root + "/link")
        try FileManager.default.createDirectory(atPath: place, withIntermediateDirectories: true)
        try FileManager.default.createSymbolicLink(atPath: link, withDestinationPath: place)
        let run = try CommandRun(
            arguments: ["list", fixture.path, "--index"],
            environment: ["XDG_CACHE_HOME": link + "/cache"]
        )
        #expect(run.status == 0 && !run.errors.contains("index"), "\(run.errors)")
        let files = try FileManager.default.contentsOfDirectory(atPath: place + "/cache/stall-monitor/index")
        #expect(files.contains { $0.hasSuffix(".sqlite") }, "\(files)")
    }

    @Test("a damaged index that cannot be removed is reported, and everything is read")
    func lasting() throws {
        try flood(300)
        // As root, without the right to write into every directory.
        let privileges = geteuid() == 0 ? ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] : []
        func list(_ index: String) throws -> CommandRun {
            let command = [CommandRun.executable.path, "list", fixture.path, index]
            let cache = "XDG_CACHE_HOME=" + fixture.root + "/cache"
            return try CommandRun(tool: "/usr/bin/env", [cache] + privileges + command)
        }
        let made = try list("--index")
        let folder = fixture.root + "/cache/stall-monitor/index"
        let names = try FileManager.default.contentsOfDirectory(atPath: folder)
        let file = URL(filePath: "\(folder)/\(try #require(names.first { $0.hasSuffix(".sqlite") }))")
        // The end of the file is the end of the reports' data.
        var bytes = try Data(contentsOf: file)
        bytes[bytes.count - 1] ^= 0xff
        let handle = try FileHandle(forWritingTo: file)
        try handle.write(contentsOf: bytes)
        try handle.close()
        try FileManager.default.setAttributes([.posixPermissions: 0o500], ofItemAtPath: folder)
        defer { try? FileManager.default.setAttributes([.posixPermissions: 0o700], ofItemAtPath: folder) }
        let used = try list("--index")
        #expect(used.status == 0 && used.output == made.output && used.errors.contains("is damaged"), "\(used.errors)")
    }

    private func compare(_ arguments: [String]) throws {
        let plain = try CommandRun(arguments: arguments + ["--no-index"], environment: cache)
        let made = try CommandRun(arguments: arguments + ["--index"], environment: cache)
        let used = try CommandRun(arguments: arguments + ["--index"], environment: cache)
        for indexed in [made, used] {
            #expect(Self.timeless(indexed.output) == Self.timeless(plain.output), "\(arguments)")
            #expect(indexed.errors == plain.errors, "\(arguments)")
            #expect(indexed.status == plain.status, "\(arguments)")
        }
    }

    /// Without parts that say how long ago something was.
    private static func timeless(_ text: String) -> [Substring] {
        text.split(separator: "\n").map { line in
            let words = line.split(separator: " ").filter {
                !$0.contains("ago") && $0.last.map { !"smhd".contains($0) } ?? true
            }
            return words.joined(separator: " ")[...]
        }
    }

    @Test("after a kill -9 while an index is written, the next reader continues and prints everything")
    func killed() throws {
        // More than the number of reports that are written to the index at a time.
        try flood(12_000)
        let plain = try CommandRun("list", fixture.path, "--no-index", environment: cache)
        let folder = fixture.root + "/cache/stall-monitor/index"
        for size in testsAllForms ? [1, 100_000, 500_000] : [100_000] {
            try? FileManager.default.removeItem(atPath: folder)
            let reader = CommandRun.process(["list", fixture.path], environment: cache)
            (reader.standardOutput, reader.standardError) = (FileHandle.nullDevice, FileHandle.nullDevice)
            try reader.runWithSignals()
            while reader.isRunning, Self.size(of: folder) < size {}
            reader.killIfRunning()
            reader.waitUntilExit()
            let next = try CommandRun("list", fixture.path, environment: cache)
            #expect(next.output == plain.output && next.errors == plain.errors, "killed at \(size) bytes")
        }
    }

    private static func size(of folder: String) -> Int {
        let names = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
        return names.map { name in
            let file = try? FileManager.default.attributesOfItem(atPath: "\(folder)/\(name)")
            return file?[.size] as? Int ?? 0
        }.reduce(0, +)
    }

    /// Adds a realistic mix of reports, older than the recent ones that an index leaves out.
    private func flood(_ count: Int, first: Int = 0) throws {
        let process = Process()
        process.executableURL = .built("report-flood")
        process.arguments = [fixture.path, "\(count)", "\(first)", "5"]
        try process.run()
        process.waitUntilExit()
        for name in try FileManager.default.contentsOfDirectory(atPath: fixture.path) {
            try FileManager.default.setAttributes(
                [.modificationDate: Date.now.addingTimeInterval(-1000)],
                ofItemAtPath: "\(fixture.path)/\(name)"
            )
        }
    }
}
