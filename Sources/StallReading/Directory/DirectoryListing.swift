import Glibc
package import StallReports

/// A version of a directory: it changes whenever a name in the directory is added, removed or replaced.
package struct DirectoryStamp: Hashable, Sendable {
    package var inode: UInt64
    package var modified: Timestamp
    package var changed: Timestamp

    package init(inode: UInt64, modified: Timestamp, changed: Timestamp) {
        (self.inode, self.modified, self.changed) = (inode, modified, changed)
    }
}

/// The names in a report directory, read in one pass: a directory can contain a million.
package struct DirectoryListing: Sendable {
    /// The stalls that have a report, by the files' names, oldest first.
    package var stalls: [ULID] = []
    /// For each stall, the inode number of its file (inode(7)), as listed in the directory.
    package var inodes: [UInt64] = []
    /// The run records, oldest first.
    package var runs: [ULID] = []
    /// The live records, oldest first.
    package var records: [ULID] = []
    /// The names of directories in it, and of links to directories.
    package var below: [String] = []
    /// Whether one of the names is not a directory's. A directory with a report's name also counts: readers report that it is not
    /// a file.
    package var holdsReports = false
    /// The directory's version before the pass.
    package var stamp: DirectoryStamp
    /// When the pass began.
    package var readAt: Timestamp

    package init(stamp: DirectoryStamp, readAt: Timestamp) { (self.stamp, self.readAt) = (stamp, readAt) }

    /// Whether every later change gives the directory another version. A change just before the pass may have the same time as
    /// one just after it.
    package var isCertain: Bool {
        // Times are as exact as a tick of the kernel's clock, on some file systems as two seconds.
        let tickNs: Int64 = stamp.modified.nanoseconds == 0 ? 2_000_000_000 : 50_000_000
        return max(stamp.modified, stamp.changed).advanced(byNanoseconds: tickNs) < readAt
    }
}

extension DirectoryListing {
    /// Reads the directory.
    ///
    /// - Parameter sortsStalls: Without it, the stalls are in the directory's order.
    package init(path: String, sortsStalls: Bool = true) throws(ReportError) {
        try self.init(reading: OpenDirectory(path: path), sortsStalls: sortsStalls)
    }

    init(reading directory: borrowing OpenDirectory, sortsStalls: Bool = true) throws(ReportError) {
        // The time is read before the stamp: a change in between makes the listing less certain, but not wrong.
        let now = Timestamp.now()
        var listing = DirectoryListing(stamp: try directory.stamp(), readAt: now)
        try directory.forEachRawEntry { entry in listing.add(entry, of: directory) }
        listing.runs.sort()
        listing.records.sort()
        if sortsStalls { listing.sortStalls() }
        self = listing
    }

    private mutating func add(_ entry: OpenDirectory.RawEntry, of directory: borrowing OpenDirectory) {
        // One more than permitted shows that there are too many.
        let mayCount = entry.mayBeDirectory && below.count <= ReportTree.limit
        let isDirectory = mayCount && directory.leadsToDirectory(entry)
        if isDirectory { below.append(entry.name) }
        if addName(entry), !isDirectory { holdsReports = true }
    }

    /// False for a name that is not the store's.
    private mutating func addName(_ entry: OpenDirectory.RawEntry) -> Bool {
        if let id = unsafe ULID(named: "stall-", entry.bytes, ".json") {
            stalls.append(id)
            inodes.append(entry.inode)
        } else if let id = unsafe ULID(named: "run-", entry.bytes, ".json") {
            runs.append(id)
        } else if let name = LiveRecordName(short: entry) {
            records.append(name.run)
        } else {
            return false
        }
        return true
    }

    /// Sorts by buckets of the ids' time: a million ids in the order of a hash are sorted with a fraction of the comparisons.
    mutating func sortStalls() {
        let (least, most) = (stalls.min()?.rawValue ?? 0, stalls.max()?.rawValue ?? 0)
        let shift = max(0, (most - least).bitWidth - (most - least).leadingZeroBitCount - 14)
        var counts = [Int](repeating: 0, count: (1 << 14) + 1)
        for id in stalls { counts[Int((id.rawValue - least) >> shift) + 1] += 1 }
        for bucket in counts.indices.dropFirst() { counts[bucket] += counts[bucket - 1] }
        var (sorted, next) = (
            [(id: ULID, inode: UInt64)](repeating: (ULID(rawValue: 0), 0), count: stalls.count), counts
        )
        for (id, inode) in zip(stalls, inodes) {
            let bucket = Int((id.rawValue - least) >> shift)
            sorted[next[bucket]] = (id, inode)
            next[bucket] += 1
        }
        for (start, end) in zip(counts, counts.dropFirst()) where end - start > 1 {
            sorted[start..<end].sort { $0.id < $1.id }
        }
        for (index, (id, inode)) in sorted.enumerated() { (stalls[index], inodes[index]) = (id, inode) }
    }
}

extension LiveRecordName {
    /// Nil for names that are too long for the store, so that no string is created for a million other names.
    fileprivate init?(short entry: OpenDirectory.RawEntry) {
        guard unsafe entry.bytes.count < 40, unsafe entry.bytes.first == UInt8(ascii: "l") else { return nil }
        self.init(entry.name)
    }
}

extension ULID {
    /// Parses a file's name. Accepts only upper case, which is all that the store writes.
    fileprivate init?(named prefix: StaticString, _ name: UnsafeBufferPointer<UInt8>, _ suffix: StaticString) {
        let (before, after) = (prefix.utf8CodeUnitCount, suffix.utf8CodeUnitCount)
        guard name.count == before + 26 + after,
            unsafe memcmp(name.baseAddress!, prefix.utf8Start, before) == 0,
            unsafe memcmp(name.baseAddress! + before + 26, suffix.utf8Start, after) == 0
        else { return nil }
        unsafe self.init(upperCase: UnsafeBufferPointer(rebasing: name[before..<before + 26]))
    }
}

extension OpenDirectory {
    func stamp() throws(ReportError) -> DirectoryStamp {
        let raw = try describedSelf()
        return DirectoryStamp(
            inode: UInt64(raw.st_ino),
            modified: Timestamp(raw.st_mtim),
            changed: Timestamp(raw.st_ctim)
        )
    }
}

extension DirectoryStamp {
    /// The directory's version now.
    package init(path: String) throws(ReportError) { self = try OpenDirectory(path: path).stamp() }
}
