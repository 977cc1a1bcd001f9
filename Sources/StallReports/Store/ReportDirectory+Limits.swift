internal import Glibc

extension ReportDirectory {
    /// What a write left behind.
    package struct Written: Hashable, Sendable {
        /// The file's size.
        package var bytes: Int
        /// What is wrong with the directory.
        package var concerns: Set<Concern>

        package init(bytes: Int, concerns: Set<Concern>) { (self.bytes, self.concerns) = (bytes, concerns) }
    }

    /// Writes a document that was encoded elsewhere, then keeps the limits.
    ///
    /// - Parameter memory: of what the caller's run has written and read here before. Takes in this one.
    package func write(
        _ bytes: [UInt8],
        as name: ReportFileName,
        _ memory: inout WriterMemory
    ) throws(ReportError) -> Written {
        // What no reader would open again is not written either.
        guard bytes.count <= ReportReader.maximumFileSize else { throw ReportError(.tooLarge, path: path) }
        do throws(ReportError) {
            try OpenDirectory(path: path).replaceFile(name.description, with: bytes)
        } catch let error where [.missingDirectory, .missingFile].contains(error.code) {
            // Somebody tidied up: the directory, or the draft between its creation and its lock.
            try OpenDirectory.create(path: path)
            try OpenDirectory(path: path).replaceFile(name.description, with: bytes)
        }
        memory.own.insert(name)
        let isFilled = keepLimits(sparing: name, &memory)
        return Written(bytes: bytes.count, concerns: exposures.union(isFilled ? [.filled] : []))
    }

    /// Removes the oldest finished files until the limits hold, or only files that must stay, or are not ours, are left. Those of other
    /// runs go first; those of the caller's only for what it has written itself.
    ///
    /// - Returns: whether what is not the caller's to remove fills the directory.
    private func keepLimits(sparing written: ReportFileName, _ memory: inout WriterMemory) -> Bool {
        guard let directory = try? OpenDirectory(path: path),
            var stock = Stock(of: directory, around: written, own: memory.own, limits)
        else { return false }
        let reader = ReportReader(path: path)
        // What is read of others' files takes nothing from what may be read of the run's own.
        let isThrough = stock.thin(ofOthers: true, limits, in: directory, reader, &memory.lastingOthers)
        stock.thin(ofOthers: false, limits, in: directory, reader, &memory.lastingOwn)
        memory.own.formIntersection(stock.names)
        return stock.strangers.isOver(limits) || isThrough && stock.others.isOver(limits)
    }
}

/// How much is read for the sake of the limits at one write, of others' files and of the run's own each: many and large ones must not hold up
/// the reports behind them.
private struct Examination {
    /// Of files that were never read. What is over goes at the next writes.
    private var new = ReadQuota(files: 2048, bytes: 64 << 20)
    private var changed = ReadQuota(files: LastingFiles.readAgain, bytes: 4 << 20)
    private var known = ReadQuota(files: LastingFiles.readAgain, bytes: 4 << 20)
    private let turns: Set<ReportFileName>

    private struct ReadQuota {
        var files: Int
        var bytes: Int

        mutating func take(_ file: StoredFile) -> Bool {
            guard files > 0, bytes > 0 else { return false }
            (files, bytes) = (files - 1, bytes - min(file.size, ReportReader.maximumFileSize))
            return true
        }
    }

    enum Answer { case read, passOver, enough }

    init(of files: [StoredFile], _ lasting: inout LastingFiles) {
        let known = files.filter { lasting.standing(of: $0.name, $0.version) == .known }
        turns = lasting.next(of: known.map(\.name))
    }

    mutating func take(_ file: StoredFile, _ lasting: LastingFiles) -> Answer {
        switch lasting.standing(of: file.name, file.version) {
        case .new: new.take(file) ? .read : .enough
        case .changed: changed.take(file) ? .read : .passOver
        case .known: turns.contains(file.name) && known.take(file) ? .read : .passOver
        }
    }
}

/// A file that a monitor of this user wrote, by all that can be seen without reading it.
private struct StoredFile {
    let name: ReportFileName
    let version: FileStatus
    /// What it takes of the disk. Its size can be anything: a file has holes.
    let room: Int
    let isOwn: Bool
    /// Named by a time that has not come: planted, or written while the clock was wrong. Its age is not known, and nobody is to put others
    /// out by it.
    let isUndated: Bool

    var size: Int { version.size }

    static func goesBefore(_ left: StoredFile, _ right: StoredFile) -> Bool {
        left.isUndated == right.isUndated ? left.name < right.name : left.isUndated
    }
}

/// How many files there are, and what room they take.
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

    /// Whether a limit is broken that removing `file` would help.
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

/// What is in a directory, by whose it is.
private struct Stock {
    /// The first to go first.
    private var files: [StoredFile] = []
    private let written: ReportFileName
    private var gone: Set<ReportFileName> = []
    private(set) var own = Usage()
    private(set) var others = Usage()
    /// All that no monitor of this user wrote. Counted as reports, and not further than to the limits.
    private(set) var strangers = Usage()

    /// Of the files that are there still.
    var names: some Sequence<ReportFileName> { files.map(\.name).filter { !gone.contains($0) } }

    /// - Parameter written: a file just written. It shows whose files are ours here, and whether the file system tells their room: some
    ///   that are mounted over a network, or through a process, say neither as others do.
    init?(
        of directory: borrowing OpenDirectory,
        around written: ReportFileName,
        own: Set<ReportFileName>,
        _ limits: ReportDirectory.Limits
    ) {
        guard let names = try? directory.names(), let sample = directory.described(written.description) else {
            return nil
        }
        self.written = written
        let tomorrow = ULID(startOf: Timestamp.now().advanced(byNanoseconds: 86_400_000_000_000))
        for text in names {
            let name = ReportFileName(text)
            if name == nil, strangers.isOver(limits) { continue }
            guard let raw = directory.described(text) else { continue }
            let room = sample.st_blocks > 0 ? Int(raw.st_blocks).multipliedSaturated(by: 512) : Int(raw.st_size)
            let isOurs = raw.st_mode & S_IFMT == S_IFREG && raw.st_uid == sample.st_uid
            if let name, isOurs, (1...ReportReader.maximumFileSize).contains(Int(raw.st_size)) {
                let file = StoredFile(
                    name: name,
                    version: FileStatus(raw),
                    room: room,
                    isOwn: own.contains(name),
                    isUndated: name.id > tomorrow && !own.contains(name)
                )
                add(file)
            } else if !(isOurs && OpenDirectory.isOfMonitor(text)) {
                strangers.add(.stall, room)
            }
        }
        files.sort(by: StoredFile.goesBefore)
    }

    private mutating func add(_ file: StoredFile) {
        files.append(file)
        if file.isOwn { own.add(file.name.content, file.room) } else { others.add(file.name.content, file.room) }
    }

    /// - Parameter ofOthers: files of other runs, as long as all together are over the limits; else those of our own, as long as these
    ///   alone are.
    /// - Returns: whether it came to the last file: else what stays may still be removed at a later write.
    @discardableResult
    mutating func thin(
        ofOthers: Bool,
        _ limits: ReportDirectory.Limits,
        in directory: borrowing OpenDirectory,
        _ reader: ReportReader,
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
            case .passOver: continue
            case .enough: return false
            }
            guard reader.isFinished(file.name, in: directory), remove(file, in: directory) else {
                lasting.remember(file.name, file.version)
                continue
            }
            lasting.forget(file.name)
            gone.insert(file.name)
            if ofOthers { others.subtract(file) } else { own.subtract(file) }
        }
        return true
    }

    /// False if it is not ours to remove. One that is gone already, by another process that shares the directory, counts as removed.
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
    /// Whether a monitor gives such names to what is neither report nor run record: drafts and live records.
    fileprivate static func isOfMonitor(_ name: String) -> Bool { isDraft(name) || LiveRecordName(name) != nil }
}

extension ULID {
    /// The first of a moment.
    fileprivate init(startOf time: Timestamp) {
        let milliseconds = max(0, time.seconds * 1000 + Int64(time.nanoseconds / 1_000_000))
        self.init(rawValue: UInt128(milliseconds) << 80)
    }
}
