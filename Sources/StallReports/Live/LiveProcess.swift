import Glibc

/// A process that keeps, or kept, a live record, and how it ended.
public struct LiveProcess: Codable, Hashable, Sendable {
    /// The contents of the file.
    public var record: LiveRecord
    /// Whether a process holds the file's lock: the process itself, while it lives. Nil if nothing was locked.
    public var holdsLock: Bool?

    package init(record: LiveRecord, holdsLock: Bool?) {
        (self.record, self.holdsLock) = (record, holdsLock)
    }

    private enum CodingKeys: String, CodingKey {
        case record
        case holdsLock = "holds_lock"
    }

    /// Whether it is alive. The lock decides where the process's number cannot: in another pid namespace, or after the process
    /// became another program (execve(2)). The number decides where the lock cannot: a forked child that has not called exec
    /// still holds it.
    public func status(by liveness: ProcessLiveness) -> ProcessLiveness.Status {
        let seen = liveness.status(of: record.writer.process, on: record.writer.host)
        guard let holdsLock, liveness.isBoot(of: record.writer.host) else { return seen }
        if holdsLock { return seen == .dead ? .dead : .alive }
        return .dead
    }

    /// The present state of the process in the kernel, as one letter as in `/proc/PID/stat` (proc(5)). Nil if it cannot be seen
    /// from here.
    package func kernelState(by liveness: ProcessLiveness) -> Character? {
        let process = record.writer.process
        guard liveness.status(of: process, on: record.writer.host) == .alive else { return nil }
        return ProcessStat(pid: process.pid)?.state
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

/// Determines whether the process that wrote a report is still alive.
///
/// A process is identified by its number, its start, its boot of the kernel and its pid namespace: the number alone is reused.
/// Any thread.
public struct ProcessLiveness: Sendable {
    /// The state of a process. `unknown` must not be treated as dead.
    public enum Status: Hashable, Sendable {
        case alive
        /// Exited, or a zombie without living threads, or its number belongs to another process now.
        case dead
        /// It is not visible from here: another host, or another pid namespace.
        case unknown
    }

    /// The place from which processes are seen.
    private let host: HostIdentity
    private let pidNamespace: UInt64?

    /// Sees processes from the calling process.
    public init() {
        self.init(host: .current(), pidNamespace: ProcessIdentity.currentPIDNamespace())
    }

    /// Sees processes as if from another place, for tests.
    init(host: HostIdentity, pidNamespace: UInt64?) { (self.host, self.pidNamespace) = (host, pidNamespace) }

    /// Whether this is the boot of the kernel on which `host` ran: then the kernel's state about a process is valid.
    func isBoot(of host: HostIdentity) -> Bool { self.host.bootID != nil && self.host.bootID == host.bootID }

    /// The state of `process`, which ran on `host`.
    public func status(of process: ProcessIdentity, on host: HostIdentity) -> Status {
        guard let ours = self.host.bootID, let theirs = host.bootID else { return .unknown }
        // After a reboot of the same machine, no process of the earlier boot is left.
        guard ours == theirs else { return self.host.name == host.name ? .dead : .unknown }
        guard let namespace = process.pidNamespace, namespace == pidNamespace else { return .unknown }
        guard process.pid > 0 else { return .dead }
        // A process of another user that /proc hides (hidepid) still answers signal 0, with EPERM.
        if kill(process.pid, 0) != 0, errno == ESRCH { return .dead }
        guard let stat = ProcessStat(pid: process.pid) else { return .unknown }
        if stat.hasEnded { return .dead }
        return process.startTicks.map(stat.hasStart) ?? true ? .alive : .dead
    }
}

extension LiveRecord {
    /// The latest sign of life of the process.
    var lastSign: Timestamp { ([status.updatedAt] + stalls.map(\.lastSeenAt)).max() ?? status.updatedAt }

    /// When a watched loop was last sampled, in nanoseconds of `CLOCK_MONOTONIC`; 0 before the first sample.
    var lastSampleMonotonicNs: UInt64 {
        stalls.map(\.lastSeenMonotonicNs).reduce(status.lastLookMonotonicNs, max)
    }
}

extension OpenDirectory {
    /// Reads the live record of a run; nil if there is none, or if a power failure tore it: no process holds it, and it
    /// contains no usable data.
    borrowing func liveProcess(_ name: LiveRecordName) throws(ReportError) -> LiveProcess? {
        do throws(ReportError) {
            return try readLiveProcess(name)
        } catch let error where error.code == .missingFile {
            return nil
        } catch {
            throw error.at(filePath(name.description))
        }
    }

    /// Reads a block again if it is torn: it may have been read while it was written. A writer needs microseconds, so a block
    /// that is torn three times is really torn.
    private borrowing func readLiveProcess(_ name: LiveRecordName) throws(ReportError) -> LiveProcess? {
        let file = try openFile(name.description)
        // The lock is checked first: if the process dies in between, its last state is read.
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
    /// Takes a shared lock on the file, and releases it: false if a process has it exclusively.
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
