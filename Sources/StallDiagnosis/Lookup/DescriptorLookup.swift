import Glibc
import StackCapture
package import StallReports

/// What can be told of the descriptors that a thread waits on, once somebody has asked. What is asked may wait for a lock of the kernel.
package struct DescriptorLookup: Sendable {
    /// What the watchdog saw.
    package let sightings: [DescriptorSighting]
    /// Whether the call wants a file's lock.
    let wantsLock: Bool
    /// Whether the sockets may be asked: a thread in a page fault holds its socket's lock.
    let asksSockets: Bool

    package init(_ site: WaitSite) {
        sightings = site.descriptors
        wantsLock = site.call.name == "flock" || site.call.name == "fcntl"
        asksSockets = site.state != "D"
    }

    /// Without asking anybody.
    package var unasked: [StallReport.Descriptor] {
        sightings.map { StallReport.Descriptor($0) }
    }

    /// Asks. Nil when there is nothing to ask.
    package var question: (@Sendable () -> [StallReport.Descriptor])? {
        guard sightings.contains(where: { [.file, .socket, .pidfd].contains($0.kind) }) else { return nil }
        return { [self] in
            let file = sightings.first { $0.info?.mount != nil }.map { "\($0.process.directory)/mountinfo" }
            let mounts = file.flatMap { readFile($0, limit: 1 << 22) }.map(MountTable.init)
            return sightings.map { described($0, mounts) }
        }
    }

    private func described(_ sighting: DescriptorSighting, _ mounts: MountTable?) -> StallReport.Descriptor {
        var descriptor = StallReport.Descriptor(sighting)
        switch sighting.kind {
        case .file:
            descriptor.fileSystem = sighting.info?.mount.flatMap { mounts?.type(of: $0) }
            descriptor.isRemote = descriptor.fileSystem.map(MountTable.isRemote)
            if wantsLock, descriptor.isRemote == false { descriptor.holder = holder(sighting) }
        case .socket where asksSockets:
            descriptor.socket = .describe(sighting)
        case .pidfd:
            if let pid = sighting.info?.process, pid > 0 {
                descriptor.note = "process \(StallReport.ProcessName.named(pid).text)"
            }
        default: break
        }
        return descriptor
    }

    /// Who holds a lock on the file, as the kernel tells it of all files. Only of a file system of this machine.
    private func holder(_ sighting: DescriptorSighting) -> StallReport.ProcessName? {
        var status = stat()
        let file = "\(sighting.process.directory)/fd/\(sighting.number)"
        guard unsafe stat(file, &status) == 0, sighting.isStillThere,
            let table = readFile("/proc/locks", limit: 1 << 20)
        else { return nil }
        return FileLocks(table).holder(inode: UInt64(status.st_ino)).map(StallReport.ProcessName.named)
    }
}

/// Who holds which file's lock, from `/proc/locks` (proc(5)). Pure.
struct FileLocks: Hashable, Sendable {
    private var holders: [UInt64: Int32] = [:]
    private var ranges: [UInt64: [Range]] = [:]

    /// A lock on part of a file, of fcntl(2).
    private struct Range: Hashable, Sendable {
        package var pid: Int32
        var isForWriting: Bool
        package var start: UInt64
    }

    /// Lines such as `1: FLOCK  ADVISORY  WRITE 708 fe:00:14155 0 EOF`; one that begins with `->` waits.
    init(_ text: String) {
        for line in text.split(separator: "\n") {
            let fields = line.split(separator: " ")
            guard fields.count >= 8, fields[1] != "->", let pid = Int32(fields[4]), pid > 0,
                let inode = fields[5].split(separator: ":").last.flatMap({ UInt64($0) })
            else { continue }
            holders[inode] = holders[inode] ?? pid
            if fields[1] == "POSIX", let start = UInt64(fields[6]) {
                ranges[inode, default: []].append(.init(pid: pid, isForWriting: fields[3] == "WRITE", start: start))
            }
        }
    }

    package func holder(inode: UInt64) -> Int32? { holders[inode] }

    /// Who has locked the SQLite database: another process that writes (rank 0) or reads (1), or the process `own` itself, for writing
    /// (2). SQLite locks bytes from 2^30 on of the database, or from 120 on of the index of its log (os_unix.c, wal.c): what else is
    /// locked there is no business of SQLite's.
    func database(inode: UInt64, isIndex: Bool, self own: Int32) -> (pid: Int32, rank: Int)? {
        let bytes: Swift.Range<UInt64> = isIndex ? 120..<128 : 1 << 30..<(1 << 30) + 512
        let ranked = (ranges[inode] ?? []).filter { bytes.contains($0.start) }.compactMap { lock -> (Int32, Int)? in
            if lock.pid != own { return (lock.pid, lock.isForWriting ? 0 : 1) }
            return lock.isForWriting ? (lock.pid, 2) : nil
        }
        return ranked.min { $0.1 < $1.1 }
    }
}

extension StallReport.ProcessName {
    /// `4711 (postgres)`
    package var text: String { name.map { "\(pid) (\($0))" } ?? "\(pid)" }
}

extension StallReport.Descriptor {
    /// As the watchdog saw it.
    fileprivate init(_ sighting: DescriptorSighting) {
        self.init(
            number: sighting.number,
            kind: sighting.kind,
            target: sighting.path ?? sighting.link,
            isDeleted: sighting.kind == .file ? sighting.isDeleted : nil
        )
        if let count = sighting.info?.count { note = "count \(count)" }
        if let time = sighting.info?.timerNanoseconds {
            note = time > 0 ? "expires in \(DurationText(nanoseconds: time).short)" : "not set"
        }
    }
}
