import Foundation
import StackCapture
import StallReports
import TestSupport
import Testing

@Suite("tail", .timeLimit(.minutes(10)))
struct TailTests {
    private let fixture: ReportsFixture

    init() throws { fixture = try ReportsFixture() }

    @Test("-f shows a stall when it is detected and when it has ended, even if the directory appears later")
    func follows() throws {
        let tail = try RunningCommand("tail", fixture.path, "--follow")
        #expect(try tail.errorLine()?.contains("waiting for the report directory") == true)
        var report = Sample.ongoing()
        try fixture.store.write(report)
        #expect(try tail.line()?.contains("ongoing     612ms+") == true)
        #expect(try tail.line() == "    Asleep in clock_nanosleep.")
        // Growth is not shown; the end is.
        report.durationNs = 700_000_000
        try fixture.store.write(report)
        (report.state, report.endedAt) = (.recovered, report.startedAt.advanced(byNanoseconds: 800_000_000))
        report.durationNs = 800_000_000
        try fixture.store.write(report)
        let ended = try tail.line()
        #expect(ended?.hasPrefix("2026-11-18T11:06:40.923Z  recovered   800ms") == true)
        #expect(ended?.hasSuffix("shop  main  shop.Cart.total() -> Swift.Int  aa296773  \(report.id)") == true)
    }

    @Test("-f survives a removed and recreated directory, and torn files")
    func survives() throws {
        try fixture.store.write(Sample.report(id: .make()))
        let tail = try RunningCommand("tail", "-f", fixture.path, "--format", "json")
        #expect(try tail.line() != nil)
        try fixture.plant("{".utf8)
        #expect(try tail.errorLine()?.contains("cut off") == true)
        try FileManager.default.removeItem(atPath: fixture.path)
        #expect(try tail.errorLine()?.contains("is gone") == true)
        let report = Sample.report(id: .make())
        try fixture.store.write(report)
        #expect(try tail.line().map { try StallReport(json: Array($0.utf8)) } == report)
        #expect(try tail.errorLine()?.contains("has appeared") == true)
    }

    @Test("-f reports counted-only stalls: at the first, then whenever their number has doubled")
    func repeated() throws {
        let report = Sample.report(id: .make())
        try fixture.store.write(report)
        let tail = try RunningCommand("tail", "-f", fixture.path)
        for _ in 0..<2 { _ = try tail.line() }
        var run = Sample.run()
        for count in [1, 2, 3, 4] {
            run.repeated = [
                .init(fingerprint: report.fingerprint, repeats: Sample.repeats(of: report.id, count: count))
            ]
            try fixture.store.write(run)
            guard count != 3 else { continue }
            let line = try tail.line()
            #expect(line?.contains("repeated    ×\(count)") == true && line?.contains("Cart.total") == true)
        }
    }

    @Test(
        "-f shows new directories below a given one; many stalls in one of two are shown at once"
    )
    func several() throws {
        let stores = ["a", "b"].map { ReportDirectory(path: "\(fixture.path)/\($0)") }
        try stores[0].write(Sample.report(id: .make()))
        let tail = try RunningCommand("tail", "-f", fixture.path, "--format", "json")
        #expect(try tail.line() != nil)
        let count = 300
        let ids = (0..<count).map { _ in ULID.make() }
        try stores[1].write(Sample.report(id: ids[0]))
        #expect(try tail.line()?.contains("\(ids[0])") == true)
        // Everything is there before it looks again. If it showed one per round, the other directory's stall would
        // come in between.
        tail.send(SIGSTOP)
        waitUntil { statusField("State", of: tail.pid).first == "T" }
        let other = ULID.make()
        for id in ids.dropFirst() { try stores[1].write(Sample.report(id: id)) }
        try stores[0].write(Sample.report(id: other))
        tail.send(SIGCONT)
        let shown = try ids.map { _ in try tail.line() ?? "" }
        let place = try #require(shown.firstIndex { $0.contains("\(other)") })
        #expect(place == 0 || place == count - 1)
        let rest = shown.enumerated().filter { $0.offset != place }.map(\.element)
        #expect(zip(rest, ids.dropFirst()).allSatisfy { $0.contains("\($1)") })
    }

    @Test("-f names a path that cannot be followed once, and follows the others")
    func unfollowed() throws {
        let file = fixture.root + "/file"
        try Data().write(to: URL(filePath: file))
        try fixture.store.write(Sample.report())
        let tail = try RunningCommand("tail", "-f", file, fixture.path, "--format", "json")
        #expect(try tail.line() != nil)
        #expect(try tail.errorLine()?.contains(file) == true)
        let next = Sample.report(id: .make())
        try fixture.store.write(next)
        #expect(try tail.line()?.contains("\(next.id)") == true)
        tail.send(SIGINT)
        #expect(try tail.errorLine() == nil, "it is named once")
    }

    @Test("-f ends with Ctrl-\\, without a word of a crash")
    func quits() throws {
        try fixture.store.write(Sample.report())
        let tail = try RunningCommand("tail", "-f", fixture.path, "--format", "json")
        #expect(try tail.line() != nil)
        tail.send(SIGQUIT)
        #expect(try tail.errorLine() == nil)
        #expect(tail.status() == 128 + SIGQUIT)
    }

    @Test("-f follows a new directory once it can, if no descriptor was left for that when the directory appeared")
    func withoutDescriptors() throws {
        let stores = ["a", "b"].map { ReportDirectory(path: "\(fixture.path)/\($0)") }
        try stores[0].write(Sample.report(id: .make()))
        let tail = try RunningCommand("tail", "-f", fixture.path, "--format", "json")
        #expect(try tail.line() != nil)
        // It has more only while it searches, on a busy machine perhaps for long: only looks at which it waits count. Two are enough to search,
        // and not to follow one more directory.
        var looks: [Set<Int>] = []
        waitUntil {
            usleep(10_000)
            let call = procText("/proc/\(tail.pid)/syscall")
            let open = descriptors(of: tail.pid)
            let number = call.split(separator: " ").first.flatMap { Int($0) }
            let isWaiting = number.flatMap { SystemCall(number: $0, arguments: []).name }?.hasSuffix("poll") == true
            if isWaiting, procText("/proc/\(tail.pid)/syscall") == call { looks.append(open) }
            return looks.count == 50
        }
        let open = looks.min { $0.count < $1.count } ?? []
        let free = (0..<256).filter { !open.contains($0) }
        try limitDescriptors(of: tail.pid, to: free[2])
        let id = ULID.make()
        try stores[1].write(Sample.report(id: id))
        #expect(try tail.errorLine() != nil)
        try limitDescriptors(of: tail.pid, to: 256)
        #expect(try tail.line()?.contains("\(id)") == true)
    }

    private func descriptors(of pid: Int32) -> Set<Int> {
        Set((try? FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/fd").compactMap { Int($0) }) ?? [])
    }

    /// - Parameter limit: One more than the greatest number that a new descriptor may have.
    private func limitDescriptors(of pid: Int32, to limit: Int) throws {
        let run = try CommandRun(tool: "/usr/bin/prlimit", ["--pid", "\(pid)", "--nofile=\(limit):"])
        try #require(run.status == 0, "\(run.errors)")
    }

    @Test("-f begins with the latest stalls and reads no others, however many there are")
    func beginsWithLatest() throws {
        try fixture.store.write(Sample.run())
        for _ in 0..<3 { try fixture.plant("{".utf8) }
        let ids = (0..<12).map { _ in ULID.make() }
        for id in ids { try fixture.store.write(Sample.report(id: id)) }
        let tail = try RunningCommand("tail", "-f", "-n", "2", fixture.path, "--format", "json")
        for id in ids.suffix(2) { #expect(try tail.line()?.contains("\(id)") == true) }
        let next = Sample.report(id: .make())
        try fixture.store.write(next)
        #expect(try tail.line()?.contains("\(next.id)") == true)
        tail.send(SIGINT)
        #expect(try tail.errorLine() == nil, "the torn ones were not read")
    }

    @Test("Ctrl-C ends it silently, with exit code 130")
    func interrupted() throws {
        try fixture.store.write(Sample.report())
        let tail = try RunningCommand("tail", "-f", fixture.path)
        #expect(try tail.line() != nil)
        tail.send(SIGINT)
        #expect(tail.status() == 130)
        #expect(try tail.errorLine() == nil)
    }

    @Test("a closed output pipe (| head) ends it silently")
    func brokenPipe() throws {
        for _ in 0..<2 { try fixture.store.write(Sample.report(id: .make())) }
        let tail = try RunningCommand("tail", "-f", fixture.path)
        #expect(try tail.line() != nil)
        try tail.closeOutput()
        try fixture.store.write(Sample.report(id: .make()))
        #expect(tail.status() == 128 + SIGPIPE)
        #expect(try tail.errorLine() == nil)
    }

    @Test("without -f: the last ten, then it ends; -n and --since select")
    func past() throws {
        let ids = (0..<12).map { _ in ULID.make() }
        for id in ids { try fixture.store.write(Sample.report(id: id)) }
        func shown(_ run: CommandRun) -> [String] {
            run.output.split(separator: "\n").filter { $0.contains("recovered") }.map { String($0.suffix(26)) }
        }
        let all = ids.map(\.description)
        #expect(shown(try CommandRun("tail", fixture.path)) == all.suffix(10))
        #expect(shown(try CommandRun("tail", fixture.path, "-n", "2")) == all.suffix(2))
        let before = try CommandRun("tail", fixture.path, "--since", "2026-11-18T11:06:40Z")
        #expect(shown(before) == all)
        let after = try CommandRun("tail", fixture.path, "--since", "2026-11-18T11:06:41Z")
        #expect(after.output.isEmpty && after.status == 0)
        #expect(try CommandRun("tail", fixture.path, "--since", "soon").status == 64)
    }

    @Test("if nothing was ever written there, each reader asks whether it is the right directory")
    func unwritten() throws {
        try FileManager.default.createDirectory(atPath: fixture.path, withIntermediateDirectories: true)
        for command in [
            ["tail"], ["list"], ["faults"], ["faults", "--flame"], ["runs"], ["export", "--format", "csv"],
            ["show", "latest"],
        ] {
            let run = try CommandRun(arguments: command + [fixture.path])
            #expect(run.errors.contains("is this the right directory?"), "\(command) \(run.errors)")
        }
        try fixture.store.write(Sample.run())
        let watched = try CommandRun("tail", fixture.path)
        #expect(
            watched.errors.hasPrefix("stall-monitor: no stalls") && !watched.errors.contains("right directory")
                && watched.status == 0
        )
    }

    @Test("without -f a missing directory is an error")
    func missingDirectory() throws {
        let run = try CommandRun("tail", fixture.path)
        #expect(run.status == 1 && run.output.isEmpty)
        #expect(run.errors == "Error: \(fixture.path): \(ReportError(.missingDirectory))\n")
    }
}
