import Foundation
import StallReading
import StallReports
import Synchronization
import TestSupport
import Testing

@testable import StallIndex

@Suite("Index of a report directory", .serialized, .timeLimit(.minutes(60)))
struct IndexTests {
    @Test("Readers give the same results with and without an index, whatever happened to the directory in between")
    func history() throws {
        let directory = try IndexedDirectory(reports: 60)
        var random = SplitMix64.ofThisRun()
        for step in 0..<(testsAllForms ? 400 : 25) {
            try change(directory, step, &random)
            let told = Told()
            let (plain, indexed) = (try directory.read(indexed: false), try directory.read(told))
            #expect(indexed == plain, "step \(step)")
            #expect(told.all.isEmpty, "step \(step)")
        }
    }

    @Test("In a large directory each file has the same chance of being checked, the oldest too")
    func looks() {
        for index in [0, 1, 30_000, 49_999] {
            let hits = FileLook.starts(50_000).count { FileLook.others(from: $0).contains(index) }
            #expect(hits == DirectoryIndex.looks.others)
        }
    }

    private func change(_ directory: IndexedDirectory, _ step: Int, _ random: inout SplitMix64) throws {
        let ids = try directory.store.reader.names().filter { $0.content == .stall }
        guard let name = ids.randomElement(using: &random) else { return try directory.flood(20, first: step * 100) }
        let file = "\(directory.path)/\(name)"
        switch Int.random(in: 0..<8, using: &random) {
        case 0: try directory.flood(5, first: 1000 + step * 10)
        case 1: try FileManager.default.removeItem(atPath: file)
        case 2: try Data("{\"id\":".utf8).write(to: URL(filePath: file))
        case 3: try change(name, in: directory) { $0.durationNs += 1_000_000 }
        case 4:
            try change(name, in: directory) {
                ($0.state, $0.endedAt) = ($0.state == .ongoing ? (.recovered, $0.detectedAt) : (.ongoing, nil))
            }
        case 5: try change(name, in: directory) { $0.aliases = [$0.fingerprint] }
        case 6: try directory.age("\(name)")
        default: try directory.age()
        }
    }

    private func change(
        _ name: ReportFileName,
        in directory: IndexedDirectory,
        _ change: (inout StallReport) -> Void
    ) throws {
        guard var report = try? directory.store.reader.report(name.id) else { return }
        change(&report)
        try directory.store.write(report)
    }

    @Test("Unchanged reports are read once")
    func once() throws {
        let directory = try IndexedDirectory(reports: 300)
        try directory.age()
        let before = try directory.read()
        // They can no longer be read, and need not be: their names, files and times are the same.
        for name in before.names.dropFirst(10) { try damage("\(directory.path)/\(ReportFileName(.stall, name))") }
        let after = try directory.read()
        #expect(after == before && after.stalls.count == 300)
        #expect(try directory.read(indexed: false) != before)
    }

    /// Overwrites a file's contents and keeps its length and time.
    private func damage(_ file: String) throws {
        let date = try FileManager.default.attributesOfItem(atPath: file)[.modificationDate]
        let handle = try FileHandle(forWritingTo: URL(filePath: file))
        try handle.write(contentsOf: Data("x".utf8))
        try handle.close()
        try FileManager.default.setAttributes([.modificationDate: date ?? Date.now], ofItemAtPath: file)
    }

    @Test("A damaged index is discarded, with one line, and is never used")
    func damaged() throws {
        let directory = try IndexedDirectory(reports: 200)
        try directory.age()
        let truth = try directory.read()
        let whole = try Data(contentsOf: URL(filePath: directory.indexFile))
        var random = SplitMix64.ofThisRun()
        var rejected = 0
        for trial in 0..<(testsAllForms ? 1000 : 40) {
            var bytes = whole
            switch trial % 4 {
            case 0: bytes = bytes.prefix(Int.random(in: 0..<bytes.count, using: &random))
            case 1: bytes = Data((0..<5000).map { _ in UInt8.random(in: 0...255, using: &random) })
            default:
                for _ in 0..<(trial % 4 == 2 ? 1 : 100) {
                    bytes[Int.random(in: 0..<bytes.count, using: &random)] = .random(in: 0...255, using: &random)
                }
            }
            try bytes.write(to: URL(filePath: directory.indexFile))
            let told = Told()
            #expect(try directory.read(told) == truth, "trial \(trial)")
            #expect(told.all.count <= 1, "trial \(trial)")
            rejected += told.all.count
        }
        #expect(rejected > 0)
    }

    @Test("An index with other tables, or that others can write, is created again")
    func foreign() throws {
        let directory = try IndexedDirectory(reports: 200)
        try directory.age()
        let truth = try directory.read()
        try FileManager.default.setAttributes([.posixPermissions: 0o666], ofItemAtPath: directory.indexFile)
        let told = Told()
        #expect(try directory.read(told) == truth)
        #expect(told.all.count == 1 && told.all[0].contains("can be written by others"))
        #expect(IndexFolder.isOurs(directory.indexFile, S_IFREG))
        IndexFolder.remove(directory.indexFile)
        let database = try Database(path: directory.indexFile)
        try database.run("CREATE VIEW header AS SELECT 1 AS row, x'00' AS bytes")
        #expect(try directory.read() == truth)
    }

    @Test("Without a place for an index everything is read; nothing is written into the report directory")
    func noPlace() throws {
        let directory = try IndexedDirectory(reports: 200)
        try directory.age()
        let names = try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
        let truth = try directory.read(indexed: false)
        for folder in [nil, IndexFolder(path: "/proc/no-such-folder"), directory.folder] {
            let told = Told()
            let notes = DirectoryIndex.Notes(tell: { told.add($0) })
            let index = DirectoryIndex(path: directory.path, use: .always, folder: folder, notes: notes)
            #expect(try Answer(ReportReader(path: directory.path, index: index)) == truth)
            #expect(told.all.allSatisfy { $0.contains("cannot be used now") })
        }
        #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted() == names)
    }

    @Test("Why indexes cannot be used is said once, however many directories there are")
    func refusals() {
        let told = Told()
        let notes = DirectoryIndex.Notes(tell: { told.add($0) })
        for directory in ["/a", "/b", "/c"] { notes.refuse(directory, "database or disk is full") }
        notes.refuse("/c", "database is locked")
        #expect(told.all.count == 2, "\(told.all)")
        #expect(told.all[0].contains("/a, and perhaps others, cannot be used now (database or disk is full)"))
    }

    @Test("An index that another process has made again meanwhile is used, neither called damaged nor removed")
    func madeAgain() throws {
        let directory = try IndexedDirectory(reports: 200)
        try directory.age()
        let told = Told()
        let reader = ReportReader(path: directory.path, index: directory.index(told))
        #expect(try Answer(reader) == directory.read(indexed: false))
        IndexFolder.remove(directory.indexFile)
        _ = try directory.read()
        let number = {
            try FileManager.default.attributesOfItem(atPath: directory.indexFile)[.systemFileNumber].map { "\($0)" }
        }
        let made = try #require(try number())
        for round in 0..<2 {
            try directory.flood(10, first: 5000 + round * 100)
            try directory.age()
            #expect(try Answer(reader) == directory.read(indexed: false), "round \(round)")
        }
        #expect(try number() == made)
        #expect(told.all.isEmpty)
    }

    @Test("A report from centuries ahead is indexed like the others")
    func future() throws {
        let directory = try IndexedDirectory(reports: 200)
        try directory.age()
        let names = try FileManager.default.contentsOfDirectory(atPath: directory.path)
        let name = try #require(names.first { $0.hasPrefix("stall-") })
        try FileManager.default.setAttributes(
            [.modificationDate: Date(timeIntervalSince1970: 13_569_465_600)],
            ofItemAtPath: directory.path + "/" + name
        )
        let truth = try directory.read(indexed: false)
        for _ in 0..<2 { #expect(try directory.read() == truth) }
    }

    @Test("Several readers at once, with reports added and removed, return what exists")
    func together() throws {
        let directory = try IndexedDirectory(reports: 400)
        try directory.age()
        let wrong = Mutex(0)
        for round in 0..<3 {
            try directory.flood(50, first: 5000 + round * 100)
            try directory.age()
            let truth = try directory.read(indexed: false)
            DispatchQueue.concurrentPerform(iterations: 4) { _ in
                if (try? directory.read()) != truth { wrong.withLock { $0 += 1 } }
            }
        }
        #expect(wrong.withLock { $0 } == 0)
    }

    @Test("A long-lived reader sees what was added and removed since")
    func longLived() throws {
        let directory = try IndexedDirectory(reports: 100)
        try directory.age()
        let reader = ReportReader(path: directory.path, index: directory.index())
        for round in 0..<5 {
            #expect(try Answer(reader) == directory.read(indexed: false), "round \(round)")
            try directory.flood(10, first: 5000 + round * 100)
            let first = try #require(try reader.catalog().stalls.first)
            try FileManager.default.removeItem(atPath: "\(directory.path)/\(ReportFileName(.stall, first))")
        }
    }
}

extension ReportDirectory {
    fileprivate var reader: ReportReader { ReportReader(path: path) }
}
