internal import Glibc

/// A process that keeps, or kept, a live record, and what became of it.
public struct LiveProcess: Codable, Hashable, Sendable {
    /// As it stands in the file.
    public var record: LiveRecord
    /// Whether somebody holds the file's lock: the process itself, while it lives. Nil where nothing was locked.
    public var holdsLock: Bool?

    package init(record: LiveRecord, holdsLock: Bool?) {
        (self.record, self.holdsLock) = (record, holdsLock)
    }

    private enum CodingKeys: String, CodingKey {
        case record
        case holdsLock = "holds_lock"
    }

    /// What became of it. The lock tells where the process's number cannot: in another pid namespace, or when it became another
    /// program (execve(2)). The number tells where the lock cannot: a child without a program of its own still holds it.
    public func status(by liveness: ProcessLiveness) -> ProcessLiveness.Status {
        let seen = liveness.status(of: record.writer.process, on: record.writer.host)
        guard let holdsLock, liveness.isBoot(of: record.writer.host) else { return seen }
        if holdsLock { return seen == .dead ? .dead : .alive }
        return .dead
    }

    /// How it ended, if it is dead.
    public func end(by liveness: ProcessLiveness) -> ProcessEnd {
        let seen = liveness.status(of: record.writer.process, on: record.writer.host)
        return ProcessEnd(
            ProcessEnd.Clues(
                isOtherBoot: !liveness.isBoot(of: record.writer.host),
                isNumberAlive: seen == .alive,
                exitStatus: record.status.exitStatus,
                memoryKillsBefore: record.status.memoryKills,
                memoryKillsNow: record.writer.memory?.read(),
                lastSeenAt: record.lastSign
            )
        )
    }
}

extension LiveRecord {
    /// The last that is known of the process.
    var lastSign: Timestamp { ([status.updatedAt] + stalls.map(\.lastSeenAt)).max() ?? status.updatedAt }
}

extension OpenDirectory {
    /// Reads the live record of a run; nil where there is none, or one that a power cut tore: nobody holds it, and nothing can be
    /// learnt from it.
    borrowing func liveProcess(_ name: LiveRecordName) throws(ReportError) -> LiveProcess? {
        do throws(ReportError) {
            return try readLiveProcess(name)
        } catch let error where error.code == .missingFile {
            return nil
        } catch {
            throw ReportError(
                error.code,
                path: filePath(name.description),
                detail: error.detail,
                errorNumber: error.errorNumber
            )
        }
    }

    /// A block may be read while it is written: a writer needs microseconds, so what is torn three times is torn.
    private borrowing func readLiveProcess(_ name: LiveRecordName) throws(ReportError) -> LiveProcess? {
        let file = try openFile(name.description)
        // Asked first: of a process that dies in between, the last is read.
        let isFree = file.tryShare()
        var attempt = 0
        while true {
            attempt += 1
            do throws(ReportError) {
                let record = try LiveRecordLayout.record(from: file.readFromStart(limit: LiveRecordLayout.maximumSize))
                guard record.run == name.run else {
                    throw ReportError(.malformed, detail: "its run is not the one in its name")
                }
                guard record.tornStalls == 0 || attempt == 3 else { continue }
                return LiveProcess(record: record, holdsLock: record.writer.isLocked ? !isFree : nil)
            } catch let error where error.code == .torn {
                if isFree { return nil }
                guard attempt < 3 else { throw error }
            }
        }
    }
}

extension OpenFile {
    /// Takes a share of the file's lock, and gives it back: false when a process has it for itself.
    fileprivate func tryShare() -> Bool {
        guard flock(descriptor, LOCK_SH | LOCK_NB) == 0 else { return errno != EWOULDBLOCK }
        flock(descriptor, LOCK_UN)
        return true
    }

    fileprivate func readFromStart(limit: Int) throws(ReportError) -> [UInt8] {
        try systemCall(path: path) { lseek(descriptor, 0, SEEK_SET) }
        return try readAll(limit: limit)
    }
}
