import Glibc
import Testing

@testable import StallReports

/// The cost of a write in a directory with ongoing stalls of other processes.
@Suite("Lasting reports", .timeLimit(.minutes(2)))
struct LastingReportsTests {
    private let directory = TemporaryDirectory()
    private let limits = ReportDirectory.Limits(reports: 5)

    /// Creates ongoing reports of other processes, the oldest first.
    private func plantLasting(_ count: Int) throws -> [ReportFileName] {
        try directory.store.prepare()
        let names = (0..<count).map { _ in ReportFileName(.stall, .make()) }
        for name in names { directory.plant(try Sample.ongoing(id: name.id).json(), as: name.description) }
        return names
    }

    /// Writes one more report. Returns how often the planted reports were opened for it.
    private func opened(of planted: [ReportFileName], _ memory: inout WriterMemory) throws -> Int {
        let openings = try Openings(in: directory.path)
        let report = Sample.recovered()
        let store = ReportDirectory(path: directory.path, limits: limits)
        _ = try store.write(try report.json(), as: ReportFileName(.stall, report.id), &memory)
        return openings.counts().filter { name, _ in planted.contains { $0.description == name } }.values.reduce(0, +)
    }

    @Test("they are read once, and then a few at each write, however many there are")
    func readOnce() throws {
        let planted = try plantLasting(400)
        var memory = WriterMemory()
        #expect(try opened(of: planted, &memory) == 400)
        for _ in 0..<5 { #expect(try opened(of: planted, &memory) <= LastingFiles.readAgain) }
        #expect(memory.lastingOthers.count == 400)
    }

    @Test("reports that are rewritten often cost no more than a few reads at each write")
    func writtenAgain() throws {
        let planted = try plantLasting(100)
        var memory = WriterMemory()
        _ = try opened(of: planted, &memory)
        for _ in 0..<3 {
            for name in planted { try directory.store.write(Sample.ongoing(id: name.id)) }
            #expect(try opened(of: planted, &memory) <= 2 * LastingFiles.readAgain)
        }
    }

    @Test("reports that have ended meanwhile, alone or with their process, still make room")
    func ended() throws {
        let child = try ChildProcess()
        let process = try child.identity()
        let planted = try plantLasting(40)
        // As the run's process would have written them before it died.
        for name in planted[..<20] { try directory.store.write(Sample.ongoing(id: name.id, process: process)) }
        var memory = WriterMemory()
        _ = try opened(of: planted, &memory)
        #expect(directory.names.count == 41)
        child.killLeavingZombie()
        try directory.store.write(Sample.recovered(id: planted[39].id))
        for _ in 0..<4 { _ = try opened(of: planted, &memory) }
        let left = Set(directory.names.compactMap { ReportFileName($0) })
        #expect(left.isDisjoint(with: planted[..<20]) && !left.contains(planted[39]))
        #expect(left.isSuperset(of: planted[20..<39]))
    }

    @Test("they are remembered up to a limit; others are read in rotation, and reported as before")
    func bound() throws {
        var lasting = LastingFiles()
        let names = (0..<LastingFiles.capacity + 40).map { ReportFileName(.stall, ULID(rawValue: UInt128($0))) }
        let version = FileStatus(stat())
        for name in names { lasting.remember(name, version) }
        #expect(lasting.count == LastingFiles.capacity)
        #expect(names.allSatisfy { lasting.readState(of: $0, version) == .known })
        var seen: Set<ReportFileName> = []
        for _ in 0...names.count / LastingFiles.readAgain {
            let next = lasting.next(of: names)
            #expect(next.count == LastingFiles.readAgain)
            seen.formUnion(next)
        }
        #expect(seen == Set(names))
        lasting.forgetAll(but: [names[0]])
        #expect(lasting.count == 1 && lasting.readState(of: names[1], version) == .new)
    }
}

/// Counts how often each file of a directory was opened since the creation of this object.
private final class Openings {
    private let descriptor: Int32

    init(in path: String) throws {
        descriptor = inotify_init1(O_NONBLOCK | O_CLOEXEC)
        try #require(unsafe inotify_add_watch(descriptor, path, UInt32(IN_OPEN)) >= 0)
    }

    deinit { close(descriptor) }

    func counts() -> [String: Int] {
        var counts: [String: Int] = [:]
        var buffer = [UInt8](repeating: 0, count: 1 << 16)
        while true {
            let size = unsafe read(descriptor, &buffer, buffer.count)
            guard size > 0 else { return counts }
            var at = 0
            while at < size {
                // wd, mask, cookie, length of the name: inotify(7).
                let length = (0..<4).reduce(0) { $0 | Int(buffer[at + 12 + $1]) << (8 * $1) }
                let name = String(decoding: buffer[at + 16..<at + 16 + length].prefix { $0 != 0 }, as: UTF8.self)
                counts[name, default: 0] += 1
                at += 16 + length
            }
        }
    }
}
