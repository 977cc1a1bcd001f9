import CMonitorShims
import Glibc
import RunLoopKit
package import StallReports

/// The clients that wait for a loop: sockets that the loop waits for and that have unread data, and connections to be accepted.
/// This only queries the kernel; nothing is read from the sockets.
///
/// A connection is a client's if it came in by a port that the process listens on, or to a local socket with a name. Connections
/// that the server itself opened receive answers, for which no client waits.
package struct WaitingClients: Sendable {
    let process: ObservedProcess
    let awaited: AwaitedDescriptors

    package init(process: ObservedProcess, awaited: AwaitedDescriptors) {
        (self.process, self.awaited) = (process, awaited)
    }

    /// How many descriptors are checked, and how long that may take. Each takes some microseconds.
    private static let limit = 4096
    private static let patience = Duration.milliseconds(50)

    /// Counts them. May wait for a socket's lock, which a thread in a page fault holds. Nil if the descriptors cannot be read, or
    /// if none is a client's socket.
    package func count() -> StallReport.Victims? {
        let entries = entries
        guard !entries.isEmpty else { return nil }
        let ports = listeningPorts()
        let deadline = MonotonicInstant.now + Self.patience
        var victims = StallReport.Victims(unread: 0, unreadBytes: 0, unaccepted: 0, sockets: 0)
        for entry in entries.prefix(Self.limit) {
            guard MonotonicInstant.now < deadline else { break }
            if let queue = queue(of: entry) { victims.add(queue, ports) }
        }
        return victims.sockets > 0 ? victims : nil
    }

    /// The descriptors; for a list, also those in the epoll sets among them: Foundation's run loop polls such a set.
    private var entries: [PollEntry] {
        switch awaited {
        case .set(let set): return members(of: set)
        case .list(let list):
            var known = Set<Int32>()
            let entries = list.flatMap { [PollEntry(descriptor: $0, inode: nil)] + members(of: $0) }
            return entries.filter { known.insert($0.descriptor).inserted }
        }
    }

    /// Empty if the descriptor is not an epoll set. Of a very large one the first descriptors, which are more than are checked.
    private func members(of set: Int32) -> [PollEntry] {
        let text = readFile("\(process.livingDirectory)/fdinfo/\(set)", limit: 1 << 20, isWhole: false)
        return text.map(PollEntry.all(in:)) ?? []
    }

    /// Nil for what is not a socket, and for a descriptor that no longer refers to what is in the set.
    private func queue(of entry: PollEntry) -> monitor_queue? {
        process.withDescriptor(entry.descriptor) { descriptor -> monitor_queue? in
            var status = stat()
            guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFSOCK,
                entry.inode.map({ $0 == UInt64(status.st_ino) }) ?? true
            else { return nil }
            var queue = monitor_queue()
            return unsafe monitor_look_at_queue(descriptor, &queue) ? queue : nil
        }
    }

    /// The listening ports in the process's network. The kernel lists them first.
    private func listeningPorts() -> Set<UInt16> {
        ["tcp", "tcp6"].reduce(into: []) { ports, name in
            let text = readFile("\(process.livingDirectory)/net/\(name)", limit: 1 << 16, isWhole: false) ?? ""
            ports.formUnion(ListeningPorts.read(text))
        }
    }
}

extension StallReport.Victims {
    fileprivate mutating func add(_ queue: monitor_queue, _ ports: Set<UInt16>) {
        guard queue.is_listener || queue.has_name || ports.contains(queue.port) else { return }
        sockets += 1
        if queue.is_listener {
            unaccepted = unaccepted.addingSaturated(Int64(max(0, queue.waiting)))
        } else if queue.waiting > 0 {
            unread += 1
            unreadBytes = unreadBytes.addingSaturated(Int64(queue.waiting))
        }
        clients = unread.addingSaturated(unaccepted)
    }
}

/// What a loop waits for while it rests.
package enum AwaitedDescriptors: Hashable, Sendable {
    /// What is in this epoll set (epoll(7)).
    case set(Int32)
    case list([Int32])
}

/// A descriptor in an epoll set, from `/proc/PID/fdinfo` (proc(5)). Pure.
struct PollEntry: Hashable, Sendable {
    var descriptor: Int32
    /// The inode of what the set refers to, even if the descriptor now refers to something else. Nil for a descriptor that is not
    /// in a set.
    var inode: UInt64?

    /// Parses lines such as `tfd:       11 events:       19 data: 7f0000000b  pos:0 ino:3a5 sdev:8`. Others are left out.
    static func all(in text: String) -> [PollEntry] {
        text.split(separator: "\n").compactMap { line in
            let fields = line.split(separator: " ")
            guard fields.first == "tfd:", fields.count > 1, let descriptor = Int32(fields[1]), descriptor >= 0,
                let inode = fields.first(where: { $0.hasPrefix("ino:") }).flatMap({ UInt64($0.dropFirst(4), radix: 16) }
                )
            else { return nil }
            return PollEntry(descriptor: descriptor, inode: inode)
        }
    }
}

/// The listening ports in `/proc/PID/net/tcp`. Pure.
enum ListeningPorts {
    /// Parses lines such as `0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 …`, up to the first that is not a listener.
    static func read(_ text: String) -> Set<UInt16> {
        var ports: Set<UInt16> = []
        for line in text.split(separator: "\n").dropFirst() {
            let fields = line.split(separator: " ", maxSplits: 4)
            guard fields.count > 3, fields[3] == "0A", let port = fields[1].split(separator: ":").last,
                let number = UInt16(port, radix: 16)
            else { break }
            ports.insert(number)
        }
        return ports
    }
}
