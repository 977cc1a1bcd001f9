import Glibc
import Testing

@testable import StallReading
@testable import StallReports

@Suite("Report reader", .timeLimit(.minutes(10)))
struct ReaderTests {
    private let directory = TemporaryDirectory()

    @Test("torn, hostile and foreign files are separate errors and hide nothing")
    func perFileErrors() throws {
        try directory.store.prepare()
        let (first, last) = (Sample.recovered(), Sample.recovered())
        try directory.store.write(first)
        var expected: [String: ReportError.Code] = [:]
        func plant(_ bytes: some Sequence<UInt8>, _ code: ReportError.Code) {
            let name = ReportFileName(.stall, .make())
            directory.plant(bytes, as: name.description)
            expected[directory.file(name)] = code
        }
        plant(try first.json().dropLast(40), .torn)
        plant("".utf8, .torn)
        plant(repeatElement(UInt8(ascii: "["), count: 1 << 20), .tooDeep)
        plant(repeatElement(UInt8(ascii: "x"), count: ReportReader.maximumFileSize + 1), .tooLarge)
        plant("\u{1B}[2J".utf8, .malformed)
        plant(try first.json(), .malformed)
        plant(#"{"schema":"other/1"}"#.utf8, .unsupportedSchema)
        directory.plant("".utf8, as: "README")
        try directory.store.write(last)
        let contents = try directory.reader.contents()
        #expect(contents.reports == [first, last])
        #expect(Dictionary(uniqueKeysWithValues: contents.failures.map { ($0.path ?? "", $0.code) }) == expected)
    }

    @Test("pipes, links and directories under a report's name are not opened")
    func refusesSpecialFiles() throws {
        try directory.store.prepare()
        let names = (0..<3).map { _ in ReportFileName(.stall, .make()) }
        try #require(unsafe mkfifo(directory.file(names[0]), 0o600) == 0)
        try #require(unsafe symlink("/etc/passwd", directory.file(names[1])) == 0)
        try #require(unsafe mkdir(directory.file(names[2]), 0o700) == 0)
        #expect(try directory.reader.contents().failures.map(\.code) == [.notAFile, .notAFile, .notAFile])
    }

    @Test("an ongoing stall of a killed process reads as terminated, with its last known duration as the minimum")
    func killedProcess() throws {
        try directory.store.prepare()
        let child = try ChildProcess()
        let report = Sample.ongoing(process: try child.identity())
        var run = Sample.run()
        run.process = report.process
        try directory.store.write(report)
        try directory.store.write(run)
        #expect(try directory.reader.report(report.id) == report)
        #expect(try directory.reader.run(run.id).state == .running)
        child.killLeavingZombie()
        let read = try directory.reader.report(report.id)
        #expect(read.state == .terminated)
        #expect(read.durationMinNs == report.durationNs && read.durationMaxNs == nil)
        #expect(try directory.reader.run(run.id).state == .terminated)
        child.reap()
        #expect(try directory.reader.report(report.id).state == .terminated)
    }

    @Test("the next start closes the reports of dead processes, once; living and unreadable ones stay")
    func closeTerminated() throws {
        try directory.store.prepare()
        let child = try ChildProcess()
        let dead = Sample.ongoing(process: try child.identity())
        let alive = Sample.ongoing()
        var run = Sample.run()
        run.process = dead.process
        try directory.store.write(dead)
        try directory.store.write(alive)
        try directory.store.write(run)
        directory.plant("torn".utf8, as: ReportFileName(.stall, .make()).description)
        child.killLeavingZombie()
        child.reap()
        #expect(try directory.store.closeTerminated().map(\.id) == [dead.id])
        #expect(try directory.store.closeTerminated().isEmpty)
        let blind = try ReportReader(path: directory.path, liveness: .blind).contents()
        #expect(blind.reports.map(\.state) == [.terminated, .ongoing])
        #expect(blind.runs.map(\.state) == [.terminated])
        #expect(blind.failures.count == 1)
    }
}
