import Foundation
import StallReading
import StallReports
import TestSupport

@testable import StallIndex

/// A report directory with its index, both removed with this object.
final class IndexedDirectory: Sendable {
    let root: String
    var path: String { root + "/reports" }
    var folder: IndexFolder { IndexFolder(path: root + "/index") }
    var store: ReportDirectory { ReportDirectory(path: path, limits: .init(reports: 1_000_000)) }
    var indexFile: String { folder.file(of: ReportTree.resolved(path)) }

    init(reports: Int = 0) throws {
        root = "/tmp/stall-index-\(ULID.make())"
        for directory in [root, root + "/index", path] {
            try FileManager.default.createDirectory(
                atPath: directory,
                withIntermediateDirectories: true,
                attributes: [.posixPermissions: 0o700]
            )
        }
        if reports > 0 { try flood(reports) }
    }

    deinit { try? FileManager.default.removeItem(atPath: root) }

    /// Adds a realistic mix of reports.
    func flood(_ count: Int, first: Int = 0) throws {
        let process = Process()
        process.executableURL = .built("report-flood")
        process.arguments = [path, "\(count)", "\(first)", "5"]
        try process.run()
        process.waitUntilExit()
    }

    /// As if all its files had been written long ago: an index leaves out those of the last seconds.
    func age() throws {
        for name in try FileManager.default.contentsOfDirectory(atPath: path) { try age(name) }
    }

    func age(_ name: String) throws {
        let file = path + "/" + name
        let date = try FileManager.default.attributesOfItem(atPath: file)[.modificationDate] as? Date ?? .now
        try FileManager.default.setAttributes(
            [.modificationDate: date.addingTimeInterval(-1000)],
            ofItemAtPath: file
        )
    }

    /// What a reader that begins now returns, and the notes on the index.
    func read(indexed: Bool = true, _ told: Told = Told()) throws -> Answer {
        let reader = ReportReader(path: path, index: indexed ? index(told) : nil)
        return try Answer(reader)
    }

    func index(_ told: Told = Told()) -> DirectoryIndex {
        var notes = DirectoryIndex.Notes()
        notes.tell = { told.add($0) }
        return DirectoryIndex(path: path, use: .always, folder: folder, notes: notes)
    }
}

/// The notes on the index.
final class Told: @unchecked Sendable {
    /// Guards `all`.
    private let lock = NSLock()
    private var notes: [String] = []

    var all: [String] { lock.withLock { notes } }

    func add(_ note: String) { lock.withLock { notes.append(note) } }
}

/// Everything that a reader returns.
struct Answer: Hashable {
    let names: [ULID]
    let stalls: [StallOutline]
    let each: [StallOutline]
    let runs: [RunRecord]
    let failures: Set<String>

    init(_ reader: ReportReader) throws {
        let overview = try reader.overview()
        var each: [StallOutline] = []
        let catalog = try reader.catalog()
        let failures = try catalog.forEachOutline { each.append($0) }
        (self.each, names, stalls, runs) = (each, catalog.stalls, overview.stalls, overview.runs)
        self.failures = Set((overview.failures + failures).map { "\($0.path ?? "") \($0)" })
    }
}
