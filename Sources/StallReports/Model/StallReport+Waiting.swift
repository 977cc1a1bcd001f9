// The arguments of a system call, and the descriptors on which it waited.

extension StallReport {
    /// One argument of a system call, decoded.
    public struct Argument: Codable, Hashable, Sendable {
        /// As in the call's manual page: `timeout`.
        public var name: String
        /// For display: `250ms`, `LOCK_EX`, `10.0.0.7:5432`.
        public var value: String

        /// Creates one from these values.
        public init(name: String, value: String) {
            (self.name, self.value) = (name, value)
        }
    }

    /// The file behind a descriptor while the thread waited on it.
    public struct Descriptor: Codable, Hashable, Sendable {
        /// The number passed to the call.
        public var number: Int32
        /// Its kind. `unknown` if it could not be read.
        public var kind: DescriptorKind
        /// The kernel's name (proc(5), `fd`): a path, `pipe:[77]`, `anon_inode:[eventfd]`. Nil if there was none.
        public var target: String?
        /// Whether the file had already been deleted. Nil if it is not a file.
        public var isDeleted: Bool?
        /// The type of the file's file system: `ext4`, `nfs4`.
        public var fileSystem: String?
        /// Whether that file system depends on another machine, or on a process (`fuse`).
        public var isRemote: Bool?
        /// The holder of what the call waits for: a file lock's owner.
        public var holder: ProcessName?
        /// Only for a socket.
        public var socket: Socket?
        /// More data from the kernel, in words: an eventfd's count, a pidfd's process.
        public var note: String?

        /// Creates a descriptor of which by default only number and kind are known.
        public init(
            number: Int32,
            kind: DescriptorKind,
            target: String? = nil,
            isDeleted: Bool? = nil,
            fileSystem: String? = nil,
            isRemote: Bool? = nil,
            holder: ProcessName? = nil,
            socket: Socket? = nil,
            note: String? = nil
        ) {
            (self.number, self.kind, self.target, self.isDeleted) = (number, kind, target, isDeleted)
            (self.fileSystem, self.isRemote, self.holder) = (fileSystem, isRemote, holder)
            (self.socket, self.note) = (socket, note)
        }

        private enum CodingKeys: String, CodingKey {
            case number, kind, target
            case isDeleted = "deleted"
            case fileSystem = "file_system"
            case isRemote = "remote"
            case holder, socket, note
        }
    }

    /// A process, as far as it was known.
    public struct ProcessName: Codable, Hashable, Sendable {
        /// In the pid namespace of the reporting process.
        public var pid: Int32
        /// 15 bytes at most (proc(5), `comm`). Nil if the process had already exited.
        public var name: String?

        /// Creates a process, by default without a name.
        public init(pid: Int32, name: String? = nil) {
            (self.pid, self.name) = (pid, name)
        }

        /// `4711 (postgres)`
        package var text: String { name.map { "\(pid) (\($0))" } ?? "\(pid)" }
    }

    /// A socket's two ends.
    public struct Socket: Codable, Hashable, Sendable {
        /// `tcp`, `tcp6`, `udp`, `udp6`, `unix`, `netlink`, `vsock`, or `family` and its number.
        public var family: String
        /// `10.0.0.3:40112`, `[::1]:80`, or a path, an abstract one with `@`. Nil if the socket has none.
        public var local: String?
        /// Likewise. Nil if there is none: for a listener or an unconnected datagram socket.
        public var peer: String?
        /// TCP only: `established`, `syn_sent`, `close_wait`, `listen`, …
        public var state: String?
        /// The process at the other end of a local socket, when it connected or listened.
        public var peerProcess: ProcessName?
        /// TCP only: how long nothing has arrived from the peer, nanoseconds. The kernel counts it in milliseconds.
        public var silentNs: Int64?
        /// TCP only: how often the segment in flight was retransmitted without an answer.
        public var retransmits: Int?
        /// TCP only: segments sent that the peer has not acknowledged.
        public var unacknowledged: Int?

        /// Creates a socket of which by default only the family is known.
        public init(
            family: String,
            local: String? = nil,
            peer: String? = nil,
            state: String? = nil,
            peerProcess: ProcessName? = nil,
            silentNs: Int64? = nil,
            retransmits: Int? = nil,
            unacknowledged: Int? = nil
        ) {
            (self.family, self.local, self.peer, self.state) = (family, local, peer, state)
            (self.peerProcess, self.silentNs) = (peerProcess, silentNs)
            (self.retransmits, self.unacknowledged) = (retransmits, unacknowledged)
        }

        private enum CodingKeys: String, CodingKey {
            case family, local, peer, state
            case peerProcess = "peer_process"
            case silentNs = "silent_ns"
            case retransmits, unacknowledged
        }
    }
}

/// The kind of a descriptor.
public struct DescriptorKind: OpenName {
    /// As in JSON; unknown names are kept.
    public let rawValue: String
    /// Accepts unknown names too.
    public init(rawValue: String) { self.rawValue = rawValue }

    /// Has a path: a file, a directory, a device, a named pipe.
    public static let file = DescriptorKind(rawValue: "file")
    /// pipe(2).
    public static let pipe = DescriptorKind(rawValue: "pipe")
    /// socket(2).
    public static let socket = DescriptorKind(rawValue: "socket")
    /// eventfd(2).
    public static let eventfd = DescriptorKind(rawValue: "eventfd")
    /// timerfd_create(2).
    public static let timerfd = DescriptorKind(rawValue: "timerfd")
    /// epoll(7).
    public static let epoll = DescriptorKind(rawValue: "epoll")
    /// inotify(7), fanotify(7).
    public static let inotify = DescriptorKind(rawValue: "inotify")
    /// pidfd_open(2).
    public static let pidfd = DescriptorKind(rawValue: "pidfd")
    /// signalfd(2).
    public static let signalfd = DescriptorKind(rawValue: "signalfd")
    /// io_uring(7).
    public static let ioUring = DescriptorKind(rawValue: "io_uring")
    /// Something else without a path.
    public static let other = DescriptorKind(rawValue: "other")
    /// Nothing could be read: it was closed in the meantime, or never open.
    public static let unknown = DescriptorKind(rawValue: "unknown")
}

extension StallReport {
    /// The clients that waited for the loop when the stall was detected, counted once: clients of its connections, as far as
    /// the kernel knows them. A lower bound: requests that were read before the stall and are not answered yet are not visible.
    public struct Victims: Codable, Hashable, Sendable {
        /// Accepted connections with unread data, plus connections not accepted yet.
        public var clients: Int64
        /// Accepted connections with unread data.
        public var unread: Int64
        /// The total unread bytes.
        public var unreadBytes: Int64
        /// Connections that wait to be accepted.
        public var unaccepted: Int64
        /// The number of connections and listeners checked: all of the loop's, unless there are very many.
        public var sockets: Int64

        /// `clients` is the sum. Nothing is checked.
        public init(unread: Int64, unreadBytes: Int64, unaccepted: Int64, sockets: Int64) {
            clients = unread.addingSaturated(unaccepted)
            (self.unread, self.unreadBytes) = (unread, unreadBytes)
            (self.unaccepted, self.sockets) = (unaccepted, sockets)
        }

        private enum CodingKeys: String, CodingKey {
            case clients, unread, unaccepted, sockets
            case unreadBytes = "unread_bytes"
        }
    }
}
