import Glibc
import TestSupport
import Testing

@testable import StallReading
@testable import StallReports

// Records that are torn, forged, or taken away while they are written.

extension LiveRecordTests {
    @Test("a truncated or forged record is an error or ignored, hides no report, and does not affect readers")
    func hostileRecords() throws {
        let report = Sample.recovered()
        try directory.store.write(report)
        let file = try makeFile()
        try file.write(stall(), to: 0)
        let whole = try #require(bytes(of: path))
        file.remove()
        var random = SplitMix64(seed: 1)
        for round in 0..<90 {
            var bytes = whole
            if round % 3 == 0 { bytes = Array(bytes.prefix(Int(random.next() % UInt64(whole.count)))) }
            for _ in 0..<Int(random.next() % 8) where !bytes.isEmpty {
                bytes[Int(random.next() % UInt64(min(bytes.count, 5000)))] = UInt8(truncatingIfNeeded: random.next())
            }
            directory.plant(bytes, as: "live-\(run).bin")
            let contents = try directory.reader.contents()
            #expect(contents.reports.contains(report) && contents.failures.count <= 1)
        }
        var other = whole
        other[8] = 99
        directory.plant(other, as: "live-\(run).bin")
        #expect(try directory.reader.liveProcesses().failures.map(\.code) == [.unsupportedSchema])
        directory.plant("x".utf8, as: "live-\(run).bin")
        #expect(try directory.reader.contents().failures.isEmpty, "torn, and nobody writes it")
        try directory.store.closeTerminated()
        #expect(directory.names == [ReportFileName(.stall, report.id).description])
    }

    @Test(
        "a stall with any changed byte is torn and left out; so is the record if its status or head has one"
    )
    func tornBlocks() throws {
        let file = try makeFile()
        let (first, second) = (stall(), stall())
        try file.write(first, to: 0)
        try file.write(second, to: 1)
        let whole = try #require(bytes(of: path))
        file.remove()
        func record(flipping offset: Int) throws -> LiveRecord {
            var bytes = whole
            bytes[offset] ^= 1
            return try LiveRecordLayout.record(from: bytes)
        }
        for offset in 0..<LiveRecordLayout.placeSize {
            let read = try record(flipping: LiveRecordLayout.offset(ofPlace: 0) + offset)
            #expect(read.tornStalls == 1 && read.stalls == [second], "byte \(offset) of a place")
        }
        for offset in LiveRecordLayout.statusRange {
            #expect(throws: ReportError.self, "byte \(offset)") { try record(flipping: offset) }
        }
        for offset in [24, 40, 60, 504, 512, 600, 4095] {
            #expect(throws: ReportError.self, "byte \(offset)") { try record(flipping: offset) }
        }
    }

    @Test("an intact stall with a negative length is left out", arguments: 0..<3)
    func negativeLength(index: Int) throws {
        let length = [\LiveStall.durationNs, \.durationMinNs, \.durationMaxNs][index]
        let file = try makeFile()
        var (wrong, right) = (stall(), stall())
        wrong[keyPath: length] = -1
        right[keyPath: length] = 0
        try file.write(wrong, to: 0)
        try file.write(right, to: 1)
        let read = try #require(try processes().first)
        #expect(read.record.stalls == [right] && read.record.tornStalls == 1)
    }

    @Test("pipes and links under a live record's name are not opened, and a foreign record is refused")
    func specialFiles() throws {
        let file = try makeFile()
        let (pipe, link, foreign) = (ULID.make(), ULID.make(), ULID.make())
        try #require(unsafe mkfifo("\(directory.path)/live-\(pipe).bin", 0o600) == 0)
        try #require(unsafe symlink("/etc/passwd", "\(directory.path)/live-\(link).bin") == 0)
        directory.plant(try #require(bytes(of: path)), as: "live-\(foreign).bin")
        let codes = try directory.reader.liveProcesses().failures.map(\.code)
        #expect(codes == [.notAFile, .notAFile, .malformed])
        #expect(try processes().count == 1)
        file.remove()
    }

    @Test("a file that others truncate, remove or close is an error, and no other file is written to")
    func harmlessWriter() throws {
        var file: LiveRecordFile? = try makeFile()
        try #require(unsafe truncate(path, 0) == 0)
        try file?.write(stall(), to: 0)
        TemporaryDirectory.removeTree(directory.path)
        #expect(throws: ReportError.self) { try file?.write(stall(), to: 0) }
        // The number now belongs to another file, as after a daemon's closefrom.
        let other = unsafe open("\(directory.root)/precious", O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
        let number: Int32? = file?.descriptor
        let descriptor = try #require(number)
        try #require(dup2(other, descriptor) == descriptor)
        #expect(throws: ReportError.self) { try file?.write(.init(updatedAt: Sample.start)) }
        file = nil
        #expect(bytes(of: "\(directory.root)/precious") == [])
        #expect(fcntl(descriptor, F_GETFD) >= 0, "it is not ours to close")
        close(descriptor)
        close(other)
    }

    @Test(
        "in a directory that was renamed, a record is not written any more, and is removed",
        arguments: [false, true]
    )
    func renamedDirectory(atEnd: Bool) throws {
        var file: LiveRecordFile? = try makeFile()
        let moved = directory.root + "/moved"
        try #require(unsafe rename(directory.path, moved) == 0)
        #expect(TemporaryDirectory.names(in: moved).count == 1)
        #expect(throws: ReportError.self) { try file?.write(stall(), to: 0) }
        if atEnd { file?.remove() } else { file?.removeIfMoved() }
        #expect(TemporaryDirectory.names(in: moved).isEmpty)
        file = nil
    }

    private func bytes(of path: String) -> [UInt8]? {
        let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        return try? OpenFile(owning: descriptor, path: path).readAll(limit: 1 << 20)
    }
}
