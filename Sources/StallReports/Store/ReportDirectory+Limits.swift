import Glibc

extension ReportDirectory {
    /// Removes the oldest finished files until the limits are met, or until only files are left that must stay or are not ours.
    /// Files of other runs are removed first; the caller's own only because of what it has written itself.
    ///
    /// - Parameters:
    ///   - written: The file that was just written.
    ///   - hasRoom: False if there was no room for it.
    /// - Returns: Whether files that the caller may not remove fill the directory, and how many files were removed.
    func keepLimits(
        sparing written: ReportFileName,
        hasRoom: Bool = true,
        _ memory: inout WriterMemory
    ) -> (isFilled: Bool, removed: Int) {
        guard let directory = try? OpenDirectory(path: path),
            let sample = hasRoom ? FileSample(written, in: directory) : FileSample(of: directory),
            var stored = StoredFiles(of: directory, like: sample, around: written, own: memory.own, limits)
        else { return (false, 0) }
        let documents = StoredDocuments(path: path)
        // Reading others' files does not reduce the quota for the run's own.
        let isThrough = stored.thin(ofOthers: true, limits, in: directory, documents, &memory.lastingOthers)
        stored.thin(ofOthers: false, limits, in: directory, documents, &memory.lastingOwn)
        memory.own.formIntersection(stored.names)
        let isFilled = stored.foreign.isOver(limits) || isThrough && stored.others.isOver(limits)
        return (isFilled, stored.gone.count)
    }
}

/// Limits what one write reads in order to apply the limits, separately for others' files and for the run's own: many and large
/// files must not delay the reports that wait.
private struct Examination {
    /// For files that were never read. What exceeds this is read at the next writes.
    private var new = ReadQuota(files: 2048, bytes: 64 << 20)
    private var changed = ReadQuota(files: LastingFiles.readAgain, bytes: 4 << 20)
    private var known = ReadQuota(files: LastingFiles.readAgain, bytes: 4 << 20)
    private let turns: Set<ReportFileName>

    private struct ReadQuota {
        var files: Int
        var bytes: Int

        mutating func take(_ file: StoredFile) -> Bool {
            guard files > 0, bytes > 0 else { return false }
            (files, bytes) = (files - 1, bytes - min(file.size, StoredDocuments.maximumFileSize))
            return true
        }
    }

    enum Answer { case read, skip, enough }

    init(of files: [StoredFile], _ lasting: inout LastingFiles) {
        let known = files.filter { lasting.readState(of: $0.name, $0.version) == .known }
        turns = lasting.next(of: known.map(\.name))
    }

    mutating func take(_ file: StoredFile, _ lasting: LastingFiles) -> Answer {
        switch lasting.readState(of: file.name, file.version) {
        case .new: new.take(file) ? .read : .enough
        case .changed: changed.take(file) ? .read : .skip
        case .known: turns.contains(file.name) && known.take(file) ? .read : .skip
        }
    }
}

/// A file written by a monitor of this user, as far as can be determined without reading it.
private struct StoredFile {
    let name: ReportFileName
    let version: FileStatus
    /// Its disk usage. Its size can be anything, because a file can have holes.
    let room: Int
    let isOwn: Bool
    /// Whether its name contains a future time: it was planted, or written while the clock was wrong. Its age is unknown, and it
    /// must not displace other files.
    let isUndated: Bool

    var size: Int { version.size }

    static func goesBefore(_ left: StoredFile, _ right: StoredFile) -> Bool {
        left.isUndated == right.isUndated ? left.name < right.name : left.isUndated
    }
}

/// The number of files, and their disk usage.
private struct Usage {
    private var counts: [ReportFileName.Content: Int] = [:]
    private var bytes = 0

    mutating func add(_ content: ReportFileName.Content, _ room: Int) {
        counts[content, default: 0] += 1
        bytes = bytes.addingSaturated(room)
    }

    mutating func subtract(_ file: StoredFile) {
        counts[file.name.content, default: 0] -= 1
        bytes -= min(bytes, file.room)
    }

    func joined(by other: Usage) -> Usage {
        var all = self
        all.counts.merge(other.counts, uniquingKeysWith: +)
        all.bytes = bytes.addingSaturated(other.bytes)
        return all
    }

    /// Whether a limit is exceeded that removing `file` would help to meet.
    func exceeds(_ limits: ReportDirectory.Limits, by file: StoredFile) -> Bool {
        bytes > limits.bytes || counts[file.name.content, default: 0] > limits.most(file.name.content)
    }

    func isOver(_ limits: ReportDirectory.Limits) -> Bool {
        bytes > limits.bytes || counts.contains { $1 > limits.most($0) }
    }
}

extension ReportDirectory.Limits {
    fileprivate func most(_ content: ReportFileName.Content) -> Int { content == .stall ? reports : runs }
}

/// The owner of our files in a directory, and whether its file system reports disk usage: some network and FUSE file systems report neither in
/// the usual way.
private struct FileSample {
    let owner: UInt32
    let hasUsage: Bool

    /// By a file just written.
    init?(_ written: ReportFileName, in directory: borrowing OpenDirectory) {
        guard let raw = directory.described(written.description) else { return nil }
        (owner, hasUsage) = (raw.st_uid, raw.st_blocks > 0)
    }

    /// By a new file, which is empty and removed at once, and by those that are there. If not even an empty file can be created, because none is
    /// left on the file system, this user is taken for the owner.
    init?(of directory: borrowing OpenDirectory) {
        guard let names = try? directory.names() else { return nil }
        owner = (try? directory.ownerOfNewFiles()) ?? geteuid()
        var hasUsage = false
        for name in names where !hasUsage { hasUsage = directory.described(name).map { $0.st_blocks > 0 } ?? false }
        self.hasUsage = hasUsage
    }
}

/// The contents of a directory, by owner.
private struct StoredFiles {
    /// In the order of removal.
    private var files: [StoredFile] = []
    private let written: ReportFileName
    private(set) var gone: Set<ReportFileName> = []
    private(set) var own = Usage()
    private(set) var others = Usage()
    /// Everything that was not written by a monitor of this user. Counted as reports, and only up to the limits.
    private(set) var foreign = Usage()

    /// The files that still exist.
    var names: some Sequence<ReportFileName> { files.map(\.name).filter { !gone.contains($0) } }

    /// - Parameter written: The file that is not removed.
    init?(
        of directory: borrowing OpenDirectory,
        like sample: FileSample,
        around written: ReportFileName,
        own: Set<ReportFileName>,
        _ limits: ReportDirectory.Limits
    ) {
        guard let names = try? directory.names() else { return nil }
        self.written = written
        let tomorrow = ULID(startOf: Timestamp.now().advanced(byNanoseconds: 86_400_000_000_000))
        for text in names {
            let name = ReportFileName(text)
            if name == nil, foreign.isOver(limits) { continue }
            guard let raw = directory.described(text) else { continue }
            // A file system in user space can state negative numbers, too.
            let room = max(0, sample.hasUsage ? Int(raw.st_blocks).multipliedSaturated(by: 512) : Int(raw.st_size))
            let isOurs = raw.st_mode & S_IFMT == S_IFREG && raw.st_uid == sample.owner
            if let name, isOurs, (1...StoredDocuments.maximumFileSize).contains(Int(raw.st_size)) {
                let file = StoredFile(
                    name: name,
                    version: FileStatus(raw),
                    room: room,
                    isOwn: own.contains(name),
                    isUndated: name.id > tomorrow && !own.contains(name)
                )
                add(file)
            } else if !(isOurs && OpenDirectory.isOfMonitor(text)) {
                foreign.add(.stall, room)
            }
        }
        files.sort(by: StoredFile.goesBefore)
    }

    private mutating func add(_ file: StoredFile) {
        files.append(file)
        if file.isOwn { own.add(file.name.content, file.room) } else { others.add(file.name.content, file.room) }
    }

    /// - Parameter ofOthers: Files of other runs, while all files together exceed the limits; otherwise our own, while these
    ///   alone do.
    /// - Returns: Whether it reached the last file: if not, what stays may still be removed at a later write.
    @discardableResult
    mutating func thin(
        ofOthers: Bool,
        _ limits: ReportDirectory.Limits,
        in directory: borrowing OpenDirectory,
        _ documents: StoredDocuments,
        _ lasting: inout LastingFiles
    ) -> Bool {
        let candidates = files.filter { $0.name != written && $0.isOwn != ofOthers }
        if lasting.count > 0 { lasting.forgetAll(but: Set(candidates.map(\.name))) }
        var examination = Examination(of: candidates, &lasting)
        for file in candidates {
            let usage = ofOthers ? own.joined(by: others) : own
            guard usage.exceeds(limits, by: file) else { continue }
            switch examination.take(file, lasting) {
            case .read: break
            case .skip: continue
            case .enough: return false
            }
            guard documents.isFinished(file.name, in: directory), remove(file, in: directory) else {
                lasting.remember(file.name, file.version)
                continue
            }
            lasting.forget(file.name)
            gone.insert(file.name)
            if ofOthers { others.subtract(file) } else { own.subtract(file) }
        }
        return true
    }

    /// False if this process may not remove it. A file that another process sharing the directory has removed counts as removed.
    private func remove(_ file: StoredFile, in directory: borrowing OpenDirectory) -> Bool {
        do throws(ReportError) {
            try directory.remove(file.name.description)
            return true
        } catch {
            return error.code == .missingFile
        }
    }
}

extension OpenDirectory {
    /// Whether a monitor uses such names for files other than reports and run records: drafts and live records.
    fileprivate static func isOfMonitor(_ name: String) -> Bool { isDraft(name) || LiveRecordName(name) != nil }
}
