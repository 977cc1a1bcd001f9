import CMonitorShims
import Glibc
package import StallReports

/// What a descriptor referred to at one moment, from `/proc/PID/fd` and `fdinfo` (proc(5)).
package struct DescriptorReading: Hashable, Sendable {
    package var number: Int32
    /// The process of the descriptor.
    package var process = ObservedProcess.own
    /// A path, `pipe:[77]`, `socket:[77]`, `anon_inode:[eventfd]`. Nil if there is no such descriptor.
    package var link: String?
    /// Nil for kinds for which it is not read.
    var info: DescriptorInfo?

    /// Reads a descriptor. Call it while the thread still waits: later the number may refer to another file. Takes no lock that
    /// the waiting thread, or a file system, could hold.
    package static func read(_ number: Int32, of process: ObservedProcess = .own) -> DescriptorReading {
        var reading = DescriptorReading(number: number, process: process, link: link(of: number, in: process))
        if reading.kind.hasHarmlessInfo {
            reading.info = readSmallFile("\(process.livingDirectory)/fdinfo/\(number)").map(DescriptorInfo.init(text:))
        }
        return reading
    }

    /// What the descriptor refers to now.
    package static func link(of number: Int32, in process: ObservedProcess = .own) -> String? {
        readProcLink("\(process.livingDirectory)/fd/\(number)")
    }

    /// Read from the form of the link.
    package var kind: DescriptorKind {
        guard let link else { return .unknown }
        if link.hasPrefix("/") { return .file }
        if link.hasPrefix("pipe:[") { return .pipe }
        if link.hasPrefix("socket:[") { return .socket }
        guard link.hasPrefix("anon_inode:") else { return link.hasPrefix("pidfd:") ? .pidfd : .other }
        return Self.anonymous[link.dropFirst("anon_inode:".count).filter { $0 != "[" && $0 != "]" }] ?? .other
    }

    /// The path of a file, without the mark of a deleted one.
    package var path: String? {
        guard kind == .file, let link else { return nil }
        return isDeleted ? String(link.dropLast(deletedFileMark.count)) : link
    }

    /// Whether the file was deleted, by the kernel's mark.
    var isDeleted: Bool { kind == .file && link?.hasSuffix(deletedFileMark) == true }

    /// Whether it is a socket of another process that accepts connections (listen(2)). Queries the socket now, and may wait for
    /// its lock, which a thread in a page fault holds.
    package func isListener() -> Bool {
        guard kind == .socket, process != .own else { return false }
        let isListener = process.withDescriptor(number) { descriptor -> Bool? in
            var queue = monitor_queue()
            return unsafe monitor_look_at_queue(descriptor, &queue) && queue.is_listener
        }
        return isListener ?? false
    }

    private static let anonymous: [String: DescriptorKind] = [
        "eventfd": .eventfd, "timerfd": .timerfd, "eventpoll": .epoll, "inotify": .inotify, "fanotify": .inotify,
        "pidfd": .pidfd, "signalfd": .signalfd, "io_uring": .ioUring,
    ]
}

extension ObservedProcess {
    /// Calls `body` with a descriptor of this process for the same file: the number itself, or a duplicate of another process's. Nil if the
    /// other process has no such descriptor, or may not be asked.
    func withDescriptor<Value>(_ number: Int32, _ body: (Int32) -> Value?) -> Value? {
        guard let otherID else { return body(number) }
        let duplicate = monitor_duplicate_descriptor(ProcessIdentity.livingThread(of: otherID), number)
        guard duplicate >= 0 else { return nil }
        defer { close(duplicate) }
        return body(duplicate)
    }
}

extension DescriptorKind {
    /// Whether the kind's information can be read safely. For other kinds there is nothing to learn, or the kernel takes a lock
    /// under which it may access a thread's memory, as for epoll.
    fileprivate var hasHarmlessInfo: Bool { [.file, .eventfd, .timerfd, .pidfd].contains(self) }
}

/// The text of `/proc/PID/fdinfo/N`. Pure.
struct DescriptorInfo: Hashable, Sendable {
    /// The mount that a file is on: the first field of `/proc/self/mountinfo`.
    var mount: Int?
    /// A pidfd's process; −1 once it has been waited for.
    var process: Int32?
    /// An eventfd's count.
    var count: UInt64?
    /// Nanoseconds until a timerfd expires; 0 for one that is not set.
    var timerNanoseconds: Int64?

    init(text: String) {
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: ":", maxSplits: 1)
            guard parts.count == 2 else { continue }
            let value = parts[1].trimmingPrefix { $0.isWhitespace }
            switch parts[0] {
            case "mnt_id": mount = Int(value)
            case "Pid": process = Int32(value)
            case "eventfd-count": count = UInt64(value.trimmingPrefix { $0 == " " }, radix: 16)
            case "it_value": timerNanoseconds = Self.time(value)
            default: break
            }
        }
    }

    /// `(1, 500000000)`
    private static func time(_ text: Substring) -> Int64? {
        let numbers = text.split { !$0.isNumber }.compactMap { Int64($0) }
        guard numbers.count == 2, numbers[0] < 1 << 32 else { return nil }
        return numbers[0].multipliedSaturated(by: 1_000_000_000).addingSaturated(numbers[1])
    }
}
