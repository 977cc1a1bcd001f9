import StallReports
import TestSupport
import Testing

@testable import StallIndex
@testable import StallReading

@Suite struct SegmentTests {
    @Test("Outlines are unchanged after writing and reading a segment; other bytes are refused without a trap")
    func roundTrip() throws {
        let directory = try IndexedDirectory(reports: 50)
        var reports = try ReportReader(path: directory.path).contents().reports
        reports[3].repeats = .init(
            count: 2,
            report: reports[0].id,
            firstAt: reports[0].startedAt,
            lastAt: reports[1].startedAt,
            totalNs: 7,
            longestNs: .max
        )
        (reports[4].suppressed, reports[5].cause.evidence, reports[6].culprit) = (9, nil, nil)
        (reports[7].aliases, reports[8].run, reports[9].service) = ([reports[0].fingerprint], nil, nil)
        let stalls = reports.map { StallOutline($0) }
        var segment = Segment()
        for (index, stall) in stalls.enumerated() {
            segment.add(stall, FileKey(inode: UInt64(index), modified: stall.startedAt, size: index))
        }
        let (keys, data) = (segment.keys.bytes, segment.data())
        #expect(outlines(data, stalls.map(\.id)) == stalls)
        #expect(isKeys(keys, stalls.count) && !isKeys(keys, stalls.count - 1))
        var random = SplitMix64.ofThisRun()
        for _ in 0..<2000 {
            var (bytes, keys) = (data, keys)
            for _ in 0..<3 {
                bytes[Int.random(in: 0..<bytes.count, using: &random)] = .random(in: 0...255, using: &random)
            }
            for _ in 0..<3 {
                keys[Int.random(in: 0..<keys.count, using: &random)] = .random(in: 0...255, using: &random)
            }
            _ = outlines(bytes, stalls.map(\.id))
            _ = outlines(Array(bytes.prefix(Int.random(in: 0..<bytes.count, using: &random))), stalls.map(\.id))
            _ = isKeys(keys, stalls.count)
        }
    }

    @Test("What a long pass writes before its end stays in the index")
    func longPass() throws {
        let directory = try IndexedDirectory(reports: 1)
        try directory.age()
        let sample = try #require(try ReportReader(path: directory.path).overview().stalls.first)
        let version = try #require(try ReportFiles(path: directory.path).version(of: sample.id))
        let read = (1...Segment.rows + 20).map { number in
            let outline = StallOutline(
                id: ULID(rawValue: UInt128(number)),
                startedAt: sample.startedAt,
                endedAt: nil,
                durationNs: 1,
                runDelayShare: nil,
                traits: sample.traits,
                origin: sample.origin,
                suppressed: 0,
                repeats: nil
            )
            return ReadOutline(outline: outline, version: version)
        }
        let old = Timestamp(seconds: 1_000_000_000)
        let stamp = DirectoryStamp(inode: 1, modified: old, changed: old)
        var listing = DirectoryListing(stamp: stamp, readAt: .now())
        listing.add(read.map(\.outline.id), read.map { _ in version.inode })
        let store = try #require(IndexStore(file: directory.indexFile, directory: directory.path, .init()))
        #expect(store.begin(listing, directory.path).isEmpty)
        // The second batch is written at once: a full segment, and one of ten rows, to which the third batch belongs.
        for batch in [read[..<10], read[10..<Segment.rows + 10], read[(Segment.rows + 10)...]] {
            store.add(Array(batch), of: batch.count)
        }
        store.finish()
        #expect(store.listing(stamp)?.stalls == listing.stalls)
    }

    private func outlines(_ bytes: [UInt8], _ ids: [ULID]) -> [StallOutline]? {
        var (pool, found): (OutlinePool, [StallOutline]) = (OutlinePool(), [])
        let isValid = unsafe bytes.withUnsafeBytes { raw in
            unsafe Segment.outlines(ByteView(raw), ids, &pool) { found.append($0) }
        }
        return isValid ? found : nil
    }

    private func isKeys(_ bytes: [UInt8], _ count: Int) -> Bool {
        unsafe bytes.withUnsafeBytes { unsafe Segment.keys(ByteView($0), count) { _ in } }
    }
}

@Suite struct ChecksumTests {
    @Test("A checksum changes with each changed bit and with the length")
    func bits() {
        let bytes = (0..<100).map { UInt8($0) }
        var sums: Set<UInt64> = [Checksum.of(bytes), Checksum.of(bytes + [0]), Checksum.of(Array(bytes.dropLast()))]
        for bit in 0..<800 {
            var changed = bytes
            changed[bit / 8] ^= 1 << (bit % 8)
            sums.insert(Checksum.of(changed))
        }
        #expect(sums.count == 803)
    }
}
