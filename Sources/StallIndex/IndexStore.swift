import Glibc
import StallReading
import StallReports

/// An index in use: the contents of its file, and what has to be written to it. For one thread at a time.
final class IndexStore {
    private let path: String
    private let directory: String
    private let notes: DirectoryIndex.Notes
    /// Nil once the file cannot be used any more.
    private var file: IndexFile?
    private var header: IndexHeader?
    private var pass: Pass?
    /// Whether the directory lists other inode numbers than its files have. Then each pass checks every file's status.
    private var looksAtEachFile = false
    private var isUnusable = false

    /// One reading of the whole directory.
    fileprivate struct Pass {
        let listing: DirectoryListing
        /// For each segment, by its row in the database: which of its rows are still valid.
        var valid: [Int64: [Bool]] = [:]
        /// For each stall in the listing: whether a segment has its outline.
        var isKnown: [Bool]
        var knownCount = 0
        /// Outlines that were read and are not in a segment yet. Sorted by their ids.
        var fresh: [(outline: StallOutline, key: FileKey)] = []
        /// Whether another process has written the index since the pass began. What that process has read need not be written
        /// again.
        var isOvertaken = false

        init(of listing: DirectoryListing) {
            self.listing = listing
            isKnown = [Bool](repeating: false, count: listing.stalls.count)
        }
    }

    /// How many reports in the directory were read or have a known outline.
    var knownCount: Int { pass?.knownCount ?? 0 }

    /// Opens a directory's index in a file, which is created if it is missing.
    init?(file path: String, directory: String, _ notes: DirectoryIndex.Notes) {
        (self.path, self.directory, self.notes) = (path, directory, notes)
        if unsafe access(path, F_OK) == 0, !IndexFolder.isOurs(path, S_IFREG) {
            notes.tell("the index \(path) can be written by others; it is made again")
            IndexFolder.remove(path)
        }
        do throws(Database.Problem) {
            try open()
        } catch {
            reject(error)
            guard (try? open()) != nil, file != nil else { return nil }
        }
    }

    private func open() throws(Database.Problem) {
        guard !isUnusable else { return }
        let file = try IndexFile(path: path)
        unsafe _ = chmod(path, 0o600)
        let header = try file.header()
        // The file belongs to another directory whose path has the same hash.
        if let header, header.path != directory { throw .damaged }
        (self.file, self.header) = (file, header)
    }

    /// Closes the index. A damaged one is discarded, so that it never causes a wrong answer.
    private func reject(_ problem: Database.Problem) {
        (file, header, pass) = (nil, nil, nil)
        switch problem {
        case .damaged:
            notes.tell("the index of \(directory) is damaged, or of another version; it is made again")
            IndexFolder.remove(path)
        case .unusable(let text):
            isUnusable = true
            notes.refuse(directory, text)
        case .removed: break
        }
    }

    /// The names in the directory, provided that it has not changed since the index was last complete.
    func listing(_ stamp: DirectoryStamp) -> DirectoryListing? {
        guard let names = header?.names, names.stamp == stamp else { return nil }
        var listing = DirectoryListing(stamp: names.stamp, readAt: names.readAt)
        guard listing.isCertain else { return nil }
        (listing.runs, listing.records, listing.below) = (names.runs, names.records, names.below)
        let count = (header?.rows ?? 0) + names.others.count
        listing.stalls.reserveCapacity(count)
        listing.inodes.reserveCapacity(count)
        let isRead = read { file, header throws(Database.Problem) in
            guard header.names == names else { return false }
            for part in header.parts {
                try file.keys(of: part) { key in
                    listing.stalls.append(key.id)
                    listing.inodes.append(key.file.inode)
                }
            }
            return true
        }
        guard isRead else { return nil }
        listing.add(names.others, names.inodes)
        listing.holdsReports = !(listing.stalls.isEmpty && listing.runs.isEmpty && listing.records.isEmpty)
        return listing
    }

    /// Calls `body` with the file and its current header, while no other process writes.
    private func read(_ body: (IndexFile, IndexHeader) throws(Database.Problem) -> Bool) -> Bool {
        guard let file else { return false }
        do throws(Database.Problem) {
            return try file.reading { () throws(Database.Problem) in
                guard let header = try file.header() else { return false }
                guard header.path == directory else { throw .damaged }
                self.header = header
                looksAtEachFile = header.looksAtEachFile
                return try body(file, header)
            }
        } catch {
            reject(error)
            return false
        }
    }

    /// Begins a pass.
    ///
    /// - Parameter path: The directory's path, for checking files.
    /// - Returns: The outlines of reports that are in the listing and have not changed.
    func begin(_ listing: DirectoryListing, _ path: String) -> [StallOutline] {
        // It was removed since the last pass. Another process may have made a new one.
        if file == nil { try? open() }
        var pass = Pass(of: listing)
        let known = readUnchanged(path, &pass)
        if known == nil {
            // A damaged file has been removed.
            if file == nil { try? open() }
            pass = Pass(of: listing)
        }
        pass.knownCount = known?.count ?? 0
        self.pass = pass
        return known ?? []
    }

    /// The outlines of reports that are in the pass's listing and have not changed. Nil if the index cannot be read.
    private func readUnchanged(_ path: String, _ pass: inout Pass) -> [StallOutline]? {
        let listing = pass.listing
        var outlines: [StallOutline] = []
        outlines.reserveCapacity(listing.stalls.count)
        let look = FileLook(path, listing.stalls.count)
        let isRead = read { file, header throws(Database.Problem) in
            var (pool, next): (OutlinePool, Int) = (OutlinePool(), 0)
            for part in header.parts {
                var wanted: [ULID?] = []
                wanted.reserveCapacity(part.count)
                try file.keys(of: part) { key in
                    while next < listing.stalls.count, listing.stalls[next] < key.id { next += 1 }
                    guard next < listing.stalls.count, listing.stalls[next] == key.id,
                        header.looksAtEachFile || listing.inodes[next] == key.file.inode,
                        look.confirms(key, at: next, isAsked: header.looksAtEachFile)
                    else { return wanted.append(nil) }
                    pass.isKnown[next] = true
                    wanted.append(key.id)
                }
                pass.valid[part.row] = wanted.map { $0 != nil }
                try file.outlines(of: part, wanted, &pool) { outlines.append($0) }
            }
            return true
        }
        return isRead ? outlines : nil
    }

    /// Adds what was read, sorted by id. A file that was written just now is not kept: it may be written again with the same
    /// modification time.
    func add(_ read: [ReadOutline], of count: Int) {
        pass?.knownCount += count
        guard file != nil, pass?.isOvertaken == false else { return }
        let now = Timestamp.now()
        let known = read.compactMap { read in
            read.version.map { (outline: read.outline, key: FileKey($0), isListed: isListed(read.outline.id, $0)) }
        }
        let strange = known.count { !$0.isListed }
        if strange >= 16, strange > known.count / 2 { looksAtEachFile = true }
        for row in known where now.nanoseconds(since: row.key.modified).magnitude > 2_000_000_000 {
            // A report that was replaced after it was listed is read again in the next pass.
            if row.isListed || looksAtEachFile { pass?.fresh.append((row.outline, row.key)) }
        }
        // A long build is saved step by step, because it may be interrupted.
        guard let fresh = pass?.fresh, fresh.count >= Segment.rows, let first = fresh.first?.outline.id,
            header?.parts.last.map({ $0.last < first }) ?? true
        else { return }
        var header = header ?? IndexHeader(path: directory)
        header.names = nil
        header.looksAtEachFile = looksAtEachFile
        note(fresh)
        write(header, removing: [], Segment.of(fresh))
        pass?.fresh = []
    }

    /// Whether the directory listed the file's inode number.
    private func isListed(_ id: ULID, _ version: FileStatus) -> Bool {
        guard let listing = pass?.listing, let index = listing.stalls.sortedIndex(of: id) else { return false }
        return listing.inodes[index] == version.inode
    }

    /// Ends the pass, and writes what has changed.
    func finish() {
        defer { pass = nil }
        guard let pass, !pass.isOvertaken, file != nil else { return }
        var header = header ?? IndexHeader(path: directory)
        header.looksAtEachFile = looksAtEachFile
        note(pass.fresh)
        var changes = SegmentChanges()
        if self.header == nil {
            changes.added = Segment.of(pass.fresh)
        } else {
            let isRead = read { file, now throws(Database.Problem) in
                guard now.parts == header.parts else { return false }
                changes = try SegmentChanges(pass.fresh, header.parts, pass.valid, file)
                return true
            }
            guard isRead else { return }
        }
        guard let known = self.pass else { return }
        header.names = known.names
        guard header != self.header || !changes.isEmpty else { return }
        write(header, removing: changes.removed, changes.added)
    }

    /// Notes which stalls are known from now on.
    private func note(_ fresh: [(outline: StallOutline, key: FileKey)]) {
        for (outline, _) in fresh {
            if let index = pass?.listing.stalls.sortedIndex(of: outline.id) { pass?.isKnown[index] = true }
        }
    }

    private func write(_ header: IndexHeader, removing removed: [Int64], _ added: [Segment]) {
        do throws(Database.Problem) {
            let before = Set(self.header?.parts.map(\.row) ?? [])
            let written = try file?.write(header, after: self.header, removing: removed, adding: added)
            self.header = written
            // If another process has written meanwhile, it has written the same data.
            if written == nil { pass?.isOvertaken = true }
            // The end of the pass may add rows to these segments, and keeps only valid ones then.
            for part in written?.parts ?? [] where !before.contains(part.row) {
                pass?.valid[part.row] = [Bool](repeating: true, count: part.count)
            }
        } catch {
            reject(error)
        }
    }
}

extension IndexStore.Pass {
    /// The directory's names as the header stores them.
    var names: IndexHeader.Names {
        let others = isKnown.indices.filter { !isKnown[$0] }
        return IndexHeader.Names(
            stamp: listing.stamp,
            readAt: listing.readAt,
            runs: listing.runs,
            records: listing.records,
            below: listing.below,
            others: others.map { listing.stalls[$0] },
            inodes: others.map { listing.inodes[$0] }
        )
    }
}
