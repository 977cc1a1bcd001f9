import Glibc
import Testing

@testable import StallReading
@testable import StallReports

/// Files that others put into a report directory: none may crash or block the process that writes there, or make it
/// lose data.
@Suite("Hostile report directory", .timeLimit(.minutes(3)))
struct HostileDirectoryTests {
    private let directory = TemporaryDirectory()

    /// An id that sorts after all current ones.
    private func lateID(_ number: Int) -> ULID { ULID(rawValue: .max - UInt128(number)) }

    /// Creates a sparse file of the given size, which uses no disk space.
    private func plantSparse(_ size: off_t, as name: String, in path: String) throws {
        let descriptor = unsafe open("\(path)/\(name)", O_WRONLY | O_CREAT, 0o600)
        try #require(ftruncate(descriptor, size) == 0)
        close(descriptor)
    }

    @Test("files of 2^63-1 bytes are skipped", .enabled(if: MountedDisk.isPermitted))
    func largestFiles() throws {
        let disk = try MountedDisk(at: directory.root + "/disk", options: "size=1m")
        let store = ReportDirectory(path: disk.path)
        for number in 0..<3 { try plantSparse(.max, as: "stall-\(lateID(number)).json", in: disk.path) }
        try plantSparse(.max, as: "live-\(ULID.make()).bin", in: disk.path)
        try plantSparse(.max, as: ".draft-\(ULID.make())", in: disk.path)
        try store.prepare()
        try store.closeTerminated()
        let reports = (0..<3).map { _ in Sample.recovered() }
        for report in reports { try store.write(report) }
        let contents = try ReportReader(path: disk.path).contents()
        #expect(contents.reports.map(\.id) == reports.map(\.id))
        #expect(contents.failures.map(\.code) == [.tooLarge, .tooLarge, .tooLarge, .tooLarge])
    }

    @Test("a sparse file of a terabyte with a late name displaces no report and is not removed")
    func sparseFile() throws {
        try directory.store.prepare()
        let reports = (0..<5).map { _ in Sample.recovered() }
        for report in reports { try directory.store.write(report) }
        let name = "stall-\(lateID(0)).json"
        try plantSparse(1 << 40, as: name, in: directory.path)
        let last = Sample.recovered()
        try directory.store.write(last)
        #expect(try directory.reader.contents().reports.map(\.id) == (reports + [last]).map(\.id))
        #expect(directory.names.contains(name))
    }

    @Test("files with future ids are removed before any report")
    func lateNames() throws {
        let store = ReportDirectory(path: directory.path, limits: .init(reports: 10))
        try store.prepare()
        let reports = (0..<6).map { _ in Sample.recovered() }
        for report in reports { try store.write(report) }
        for number in 0..<20 { directory.plant("{}".utf8, as: "stall-\(lateID(number)).json") }
        let last = Sample.recovered()
        try store.write(last)
        #expect(try directory.reader.contents().reports.map(\.id) == (reports + [last]).map(\.id))
        #expect(directory.names.count == 10)
    }
}
