import CMonitorShims
import Glibc
import StackCapture
package import StallReports

/// Determines what the descriptors refer to on which a thread waits. This may wait for a lock of the kernel.
package struct DescriptorLookup: Sendable {
    /// What the watchdog saw.
    package let readings: [DescriptorReading]
    /// Whether the call waits for a lock on a file.
    let wantsLock: Bool
    /// Whether sockets may be queried. A thread in a page fault holds its socket's lock.
    let asksSockets: Bool

    package init(_ site: WaitSite) {
        readings = site.descriptors
        wantsLock = site.call.name == "flock" || site.call.name == "fcntl"
        asksSockets = site.state != "D"
    }

    /// The descriptors without any lookup.
    package var unasked: [StallReport.Descriptor] {
        readings.map { StallReport.Descriptor($0) }
    }

    /// A closure that looks them up. Nil if there is nothing to look up.
    package var question: (@Sendable () -> [StallReport.Descriptor])? {
        guard readings.contains(where: { [.file, .socket, .pidfd].contains($0.kind) }) else { return nil }
        return { [self] in
            let file = readings.first { $0.info?.mount != nil }.map { "\($0.process.livingDirectory)/mountinfo" }
            let mounts = file.flatMap { readFile($0, limit: 1 << 22) }.map(MountTable.init)
            return readings.map { described($0, mounts) }
        }
    }

    private func described(_ reading: DescriptorReading, _ mounts: MountTable?) -> StallReport.Descriptor {
        var descriptor = StallReport.Descriptor(reading)
        switch reading.kind {
        case .file:
            descriptor.fileSystem = reading.info?.mount.flatMap { mounts?.type(of: $0) }
            descriptor.isRemote = descriptor.fileSystem.map(MountTable.isRemote)
            if wantsLock, descriptor.isRemote == false { descriptor.holder = holder(reading) }
        case .socket where asksSockets:
            descriptor.socket = .describe(reading)
        case .pidfd:
            if let pid = reading.info?.process, pid > 0 {
                descriptor.note = "process \(StallReport.ProcessName.named(pid).text)"
            }
        default: break
        }
        return descriptor
    }

    /// The process that holds a lock on the file, by the kernel's list of all locks. Only for file systems of this machine.
    private func holder(_ reading: DescriptorReading) -> StallReport.ProcessName? {
        var status = stat()
        let file = "\(reading.process.livingDirectory)/fd/\(reading.number)"
        guard unsafe stat(file, &status) == 0, reading.isStillThere,
            let table = readFile("/proc/locks", limit: 1 << 20)
        else { return nil }
        let holder = FileLocks(table).holder(of: FileLocks.File(status), awaitedBy: reading.process.processID)
        return holder.map(StallReport.ProcessName.named)
    }
}

/// The owners of file locks, from `/proc/locks` (proc(5)). Pure.
struct FileLocks: Hashable, Sendable {
    /// Keyed by the file's inode.
    private var locks: [UInt64: [Lock]] = [:]

    private struct Lock: Hashable, Sendable {
        var device: UInt64
        /// Nil if it belongs to no process: a lock of an open file (F_OFD_SETLK).
        var pid: Int32?
        /// Whether it is a lock on part of a file, by fcntl(2).
        var isOfRange: Bool
        var isForWriting: Bool
        var start: UInt64
        /// The processes that wait for it.
        var waiters: Set<Int32> = []
    }

    /// A file, by its numbers in the kernel. Files of two file systems may have the same inode.
    struct File: Hashable, Sendable {
        var major: UInt64
        var minor: UInt64
        var inode: UInt64

        init(major: UInt64, minor: UInt64, inode: UInt64) {
            (self.major, self.minor, self.inode) = (major, minor, inode)
        }

        init(_ status: stat) {
            let device = UInt64(status.st_dev)
            // The layout of glibc's makedev(3).
            major = device >> 8 & 0xfff | device >> 32 & ~0xfff
            minor = device & 0xff | device >> 12 & 0xffff_ff00
            inode = UInt64(status.st_ino)
        }

        fileprivate var device: UInt64 { FileLocks.device(major, minor) }
    }

    private static func device(_ major: UInt64, _ minor: UInt64) -> UInt64 { major << 32 | minor & 0xffff_ffff }

    /// Parses lines such as `1: FLOCK  ADVISORY  WRITE 708 fe:00:14155 0 EOF`. One with `->` after the number waits for the lock with that number,
    /// which comes before it.
    init(_ text: String) {
        var latest: (number: Substring, inode: UInt64)?
        for line in text.split(separator: "\n") {
            let fields = line.split(separator: " ")
            if fields.count > 5, fields[1] == "->" {
                guard let latest, latest.number == fields[0], let waiter = Int32(fields[5]) else { continue }
                note(waiter, ofLatestOn: latest.inode)
                continue
            }
            latest = nil
            guard fields.count >= 8, let pid = Int32(fields[4]) else { continue }
            let place = fields[5].split(separator: ":")
            guard place.count == 3, let major = UInt64(place[0], radix: 16), let minor = UInt64(place[1], radix: 16),
                let inode = UInt64(place[2])
            else { continue }
            let lock = Lock(
                device: Self.device(major, minor),
                pid: pid > 0 ? pid : nil,
                isOfRange: fields[1] == "POSIX",
                isForWriting: fields[3] == "WRITE",
                start: UInt64(fields[6]) ?? .max
            )
            locks[inode, default: []].append(lock)
            latest = (fields[0], inode)
        }
    }

    private mutating func note(_ waiter: Int32, ofLatestOn inode: UInt64) {
        guard let last = locks[inode]?.indices.last else { return }
        locks[inode]?[last].waiters.insert(waiter)
    }

    /// The locks on a file. Some file systems without a device of their own (btrfs) have another number in stat(2) than in the
    /// list; for these the inode decides if it is that of one file only.
    private func found(on file: File) -> [Lock] {
        let alike = locks[file.inode] ?? []
        let same = alike.filter { $0.device == file.device }
        guard same.isEmpty, file.major == 0, Set(alike.map(\.device)).count == 1 else { return same }
        return alike
    }

    /// The process that holds a lock on the file: the one for which `waiter` waits, since others may have locked other parts of the
    /// file. If it does not wait, the first other one: it may have got its own lock in the meantime.
    func holder(of file: File, awaitedBy waiter: Int32? = nil) -> Int32? {
        let all = found(on: file)
        if let waiter, let awaited = all.first(where: { $0.waiters.contains(waiter) }) { return awaited.pid }
        // Who waits for a lock of an open file (F_OFD_SETLKW) has the number -1: it may be `waiter`, or another process.
        let unnamed = Set(all.filter { $0.waiters.contains(-1) }.map(\.pid))
        if let holder = unnamed.first { return unnamed.count == 1 ? holder : nil }
        return all.lazy.compactMap(\.pid).first { $0 != waiter }
    }

    /// The process that has locked the SQLite database: another process that writes (rank 0) or reads (1), or the process `own`
    /// itself, for writing (2). SQLite locks bytes from 2^30 on in the database, or from 120 on in the index of its log
    /// (os_unix.c, wal.c); other locks there are not SQLite's.
    func database(_ file: File, isIndex: Bool, self own: Int32) -> (pid: Int32, rank: Int)? {
        let bytes: Range<UInt64> = isIndex ? 120..<128 : 1 << 30..<(1 << 30) + 512
        let ranges = found(on: file).filter { $0.isOfRange && bytes.contains($0.start) }
        let ranked = ranges.compactMap { lock -> (pid: Int32, rank: Int)? in
            guard let pid = lock.pid else { return nil }
            if pid != own { return (pid, lock.isForWriting ? 0 : 1) }
            return lock.isForWriting ? (pid, 2) : nil
        }
        return ranked.min { $0.rank < $1.rank }
    }
}

extension StallReport.Descriptor {
    /// As the watchdog saw it.
    fileprivate init(_ reading: DescriptorReading) {
        self.init(
            number: reading.number,
            kind: reading.kind,
            target: reading.path ?? reading.link,
            isDeleted: reading.kind == .file ? reading.isDeleted : nil
        )
        if let count = reading.info?.count { note = "count \(count)" }
        if let time = reading.info?.timerNanoseconds {
            note = time > 0 ? "expires in \(DurationText(nanoseconds: time).short)" : "not set"
        }
    }
}

extension StallReport.Socket {
    /// The socket of a descriptor, if the descriptor still refers to the same one after the query. May wait: see
    /// `monitor_describe_socket`.
    static func describe(_ reading: DescriptorReading) -> Self? {
        var found = monitor_socket()
        guard reading.isStillThere,
            reading.process.withDescriptor(reading.number, { unsafe monitor_describe_socket($0, &found) }) == 0,
            reading.isStillThere
        else { return nil }
        var socket = Self(family: familyName(found))
        socket.local = unsafe withUnsafeBytes(of: found.local) {
            name(unsafe Array($0.prefix(Int(found.local_length))))
        }
        socket.peer = unsafe withUnsafeBytes(of: found.peer) { name(unsafe Array($0.prefix(Int(found.peer_length)))) }
        if found.has_tcp { socket.take(found) }
        if found.peer_process > 0 { socket.peerProcess = .named(found.peer_process) }
        return socket
    }

    private mutating func take(_ found: monitor_socket) {
        state = Self.states.indices.contains(Int(found.tcp_state)) ? Self.states[Int(found.tcp_state)] : nil
        guard state == "established" || state == "syn_sent" || state == "close_wait" else { return }
        silentNs = state == "syn_sent" ? nil : Int64(found.silent_ms) * 1_000_000
        retransmits = Int(found.retransmits)
        unacknowledged = Int(found.unacknowledged)
    }

    private static func name(_ bytes: [UInt8]) -> String? {
        SocketAddress(bytes)?.text
    }

    private static func familyName(_ found: monitor_socket) -> String {
        let six = found.family == AF_INET6 ? "6" : ""
        switch (found.family, found.protocol) {
        case (AF_INET, 6), (AF_INET6, 6): return "tcp" + six
        case (AF_INET, 17), (AF_INET6, 17): return "udp" + six
        case (AF_UNIX, _): return "unix"
        case (16, _): return "netlink"
        case (40, _): return "vsock"
        default: return "family \(found.family)"
        }
    }

    /// Indexed by the kernel's numbers (`include/net/tcp_states.h`).
    private static let states: [String?] = [
        nil, "established", "syn_sent", "syn_recv", "fin_wait1", "fin_wait2", "time_wait", "close", "close_wait",
        "last_ack", "listen", "closing", "new_syn_recv",
    ]
}

extension DescriptorReading {
    /// Whether the number still refers to the same file.
    var isStillThere: Bool { link != nil && Self.link(of: number, in: process) == link }
}

extension StallReport.ProcessName {
    /// A process with its name, if that can be read.
    package static func named(_ pid: Int32) -> Self {
        Self(pid: pid, name: readSmallFile("/proc/\(pid)/comm").map { String($0.prefix { $0 != "\n" }) })
    }
}
