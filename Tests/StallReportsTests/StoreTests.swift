import Glibc
import StallReading
import Testing

@testable import StallReports

@Suite("Report directory", .timeLimit(.minutes(10)))
struct StoreTests {
    private let directory = TemporaryDirectory()

    @Test("it creates the directory with 0700 and files with 0600, and leaves nothing else behind")
    func modes() throws {
        let nested = ReportDirectory(path: directory.path + "/a/b/")
        let report = Sample.recovered()
        try nested.prepare()
        try nested.write(report)
        #expect(directory.mode(of: directory.path) == 0o700)
        #expect(directory.mode(of: nested.path) == 0o700)
        let file = nested.path + "/\(ReportFileName(.stall, report.id))"
        #expect(directory.mode(of: file) == 0o600)
        #expect(try ReportReader(path: nested.path).contents().reports == [report])
    }

    @Test("a later version replaces the earlier one")
    func replaces() throws {
        let ongoing = Sample.ongoing()
        try directory.store.prepare()
        try directory.store.write(ongoing)
        #expect(try directory.reader.report(ongoing.id).state == .ongoing)
        var ended = ongoing
        ended.state = .recovered
        try directory.store.write(ended)
        #expect(try directory.reader.contents().reports == [ended])
        #expect(directory.names == [ReportFileName(.stall, ongoing.id).description])
    }

    @Test("a report too large for readers is not written")
    func refusesTooLarge() throws {
        var report = Sample.recovered()
        report.metadata = ["filler": String(repeating: "x", count: ReportReader.maximumFileSize)]
        #expect(throws: ReportError(.tooLarge, path: directory.path)) { try directory.store.write(report) }
        #expect(directory.names.isEmpty)
    }

    @Test("a file system that cannot synchronize a directory, as /proc cannot, refuses no report for that")
    func withoutDirectorySync() {
        #expect(throws: Never.self) { try OpenDirectory(path: "/proc").synchronize() }
    }

    @Test("a removed directory is created again at the next write")
    func madeAgain() throws {
        try directory.store.prepare()
        TemporaryDirectory.removeTree(directory.path)
        try directory.store.write(Sample.run())
        #expect(try directory.reader.contents().runs.count == 1)
    }

    @Test("a link planted under a report's name is replaced, and its target is untouched")
    func replacesPlantedLink() throws {
        let report = Sample.recovered()
        try directory.store.prepare()
        let victim = directory.root + "/victim"
        try #require(unsafe symlink(victim, directory.file(ReportFileName(.stall, report.id))) == 0)
        #expect(throws: ReportError.self) { try directory.reader.report(report.id) }
        try directory.store.write(report)
        #expect(unsafe access(victim, F_OK) != 0)
        #expect(try directory.reader.report(report.id) == report)
    }

    @Test("drafts of dead writers are removed at the start; those of living ones stay")
    func removesAbandonedDrafts() throws {
        try directory.store.prepare()
        let (dead, alive) = (".draft-\(ULID.make())", ".draft-\(ULID.make())")
        directory.plant("half".utf8, as: dead)
        directory.plant("half".utf8, as: alive)
        let writer = unsafe open("\(directory.path)/\(alive)", O_RDONLY)
        try #require(flock(writer, LOCK_EX) == 0)
        directory.plant("".utf8, as: "notes.txt")
        try directory.store.prepare()
        #expect(directory.names == [alive, "notes.txt"])
        close(writer)
        try directory.store.prepare()
        #expect(directory.names == ["notes.txt"])
    }

    @Test("over the count limit the oldest finished reports go; ongoing stalls, living runs and other files stay")
    func keepsCount() throws {
        let store = ReportDirectory(path: directory.path, limits: .init(reports: 3, runs: 1))
        try store.prepare()
        directory.plant("mine".utf8, as: "stall-notes.json")
        let lasting = Sample.ongoing()
        let (stopped, living, second) = (Sample.run(state: .stopped), Sample.run(), Sample.run())
        try store.write(lasting)
        for run in [stopped, living, second] { try store.write(run) }
        let finished = (0..<5).map { _ in Sample.recovered() }
        for report in finished { try store.write(report) }
        let contents = try directory.reader.contents()
        #expect(contents.reports.map(\.id) == [lasting.id] + finished.suffix(2).map(\.id))
        #expect(contents.runs.map(\.id) == [living.id, second.id])
        #expect(directory.names.contains("stall-notes.json"))
    }

    @Test("over the size limit the oldest finished reports go, unreadable ones too, never the one just written")
    func keepsBytes() throws {
        let size = try Sample.recovered().json().count
        try directory.store.prepare()
        let garbage = ReportFileName(.stall, .make())
        directory.plant(repeatElement(0, count: size), as: garbage.description)
        var status = stat()
        try #require(unsafe stat(directory.file(garbage), &status) == 0)
        let store = ReportDirectory(path: directory.path, limits: .init(bytes: Int(status.st_blocks) * 512 * 5 / 2))
        let reports = (0..<3).map { _ in Sample.recovered() }
        for report in reports { try store.write(report) }
        #expect(try directory.reader.contents().reports.map(\.id) == reports.suffix(2).map(\.id))
        #expect(try directory.reader.contents().failures.isEmpty)
        let tiny = ReportDirectory(path: directory.path, limits: .init(bytes: 1))
        let last = Sample.recovered()
        try tiny.write(last)
        #expect(try directory.reader.contents().reports.map(\.id) == [last.id])
    }

    @Test("a full file system gives `full`, leaves no draft, and keeps the earlier version")
    func fullFileSystem() throws {
        let disk = try MountedDisk(at: directory.root + "/disk", options: "size=64k")
        let store = ReportDirectory(path: disk.path)
        var report = Sample.ongoing()
        try store.write(report)
        report.metadata = ["filler": String(repeating: "x", count: 100_000)]
        let error = #expect(throws: ReportError.self) { try store.write(report) }
        #expect(error?.code == .full)
        #expect(error?.errorNumber == ENOSPC)
        #expect(TemporaryDirectory.names(in: disk.path) == [ReportFileName(.stall, report.id).description])
        let contents = try ReportReader(path: disk.path).contents()
        #expect(contents.reports.map(\.metadata) == [["region": "eu"]])
        try store.prepare()
        report.metadata = [:]
        try store.write(report)
    }

    @Test(
        "on a file system that has no room, or no files, left lower limits make room for the next report",
        arguments: ["size=128k", "nr_inodes=12"]
    )
    func lowerLimits(options: String) throws {
        let disk = try MountedDisk(at: directory.root + "/disk", options: options)
        var written: [ULID] = []
        let error = #expect(throws: ReportError.self) {
            while true {
                let report = Sample.recovered()
                try ReportDirectory(path: disk.path).write(report)
                written.append(report.id)
            }
        }
        #expect(error?.code == .full)
        let last = Sample.recovered()
        try ReportDirectory(path: disk.path, limits: .init(reports: 3)).write(last)
        #expect(try ReportReader(path: disk.path).contents().reports.map(\.id) == written.suffix(2) + [last.id])
    }

    @Test("a read-only file system gives `readOnly`")
    func readOnlyFileSystem() throws {
        let disk = try MountedDisk(at: directory.root + "/disk", options: "ro")
        let error = #expect(throws: ReportError.self) { try ReportDirectory(path: disk.path).write(Sample.run()) }
        #expect(error?.code == .readOnly)
        let created = #expect(throws: ReportError.self) { try ReportDirectory(path: disk.path + "/a/b").prepare() }
        #expect(created?.code == .readOnly)
    }

    @Test("a file in place of the directory gives `notADirectory`")
    func notADirectory() throws {
        try directory.store.prepare()
        directory.plant("".utf8, as: "file")
        for path in ["/file", "/file/below"] {
            let store = ReportDirectory(path: directory.path + path)
            let error = #expect(throws: ReportError.self) { try store.prepare() }
            #expect(error?.code == .notADirectory)
        }
    }

    @Test("writers in many threads do not disturb each other")
    func concurrentWriters() async throws {
        let store = directory.store
        try store.prepare()
        await withTaskGroup(of: Void.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    for _ in 0..<10 {
                        #expect(throws: Never.self) {
                            try store.write(Sample.recovered())
                            try store.prepare()
                        }
                    }
                }
            }
        }
        let contents = try directory.reader.contents()
        #expect(contents.reports.count == 40 && contents.failures.isEmpty)
        #expect(directory.names.count == 40)
    }

    @Test("limits apply to writers that share a directory, and each one's newest report stays")
    func concurrentLimits() async throws {
        let store = ReportDirectory(path: directory.path, limits: .init(reports: 10))
        try store.prepare()
        let last = await withTaskGroup(of: ULID.self) { group in
            for _ in 0..<4 {
                group.addTask {
                    var report = Sample.recovered()
                    for _ in 0..<15 {
                        report = Sample.recovered()
                        #expect(throws: Never.self) { try store.write(report) }
                    }
                    return report.id
                }
            }
            return await group.reduce(into: [ULID]()) { $0.append($1) }
        }
        let left = try directory.reader.contents()
        // Never fewer than the limit, however many writers remove at once; at most one more for each writer.
        #expect((10...13).contains(left.reports.count) && left.failures.isEmpty)
        #expect(left.reports.map(\.id).contains(last.max() ?? .make()))
        try store.write(Sample.recovered())
        #expect(try directory.reader.contents().reports.count == 10)
    }

    @Test("a directory behind a link, or another user's, is written; the files stay private")
    func foreignDirectory() throws {
        let target = directory.root + "/target"
        unsafe mkdir(target, 0o777)
        try #require(unsafe chown(target, 65534, 65534) == 0 && symlink(target, directory.path) == 0)
        let report = Sample.recovered()
        try directory.store.prepare()
        try directory.store.write(report)
        let file = target + "/\(ReportFileName(.stall, report.id))"
        var status = stat()
        try #require(unsafe lstat(file, &status) == 0)
        #expect(status.st_uid == getuid() && status.st_mode & 0o7777 == 0o600)
        #expect(try directory.reader.report(report.id) == report)
    }

    @Test("a path's last component begins after its last slash, also before a combining accent")
    func lastComponent() {
        let paths: [(String, folder: String?, name: String)] = [
            ("/srv/app/shop", "/srv/app", "shop"), ("/shop", "/", "shop"), ("shop", ".", "shop"),
            ("a/b//", "a", "b"), ("a/\u{301}b", "a", "\u{301}b"), ("/", nil, "/"), (".", nil, "."), ("", ".", ""),
        ]
        for (path, folder, name) in paths {
            #expect(OpenDirectory.parent(of: path) == folder, "\(path)")
            #expect(fileName(ofPath: path) == name, "\(path)")
        }
    }

    @Test("error texts name no path and say what to do next")
    func errorTexts() {
        let error = #expect(throws: ReportError.self) { try ReportReader(path: "/nowhere/at/all").contents() }
        #expect(error?.code == .missingDirectory)
        #expect(error?.path == "/nowhere/at/all")
        #expect(error.map { "\($0)" }?.contains("nowhere") == false)
        #expect(error.map { "\($0)" }?.contains("check the path") == true)
    }
}
