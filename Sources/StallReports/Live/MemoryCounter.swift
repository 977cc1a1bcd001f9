internal import Glibc

/// Where the kernel counts the processes of a cgroup that it killed for lack of memory: `memory.events` of cgroup v2,
/// `memory.oom_control` of v1 (Documentation/admin-guide/cgroup-v2.rst).
public struct MemoryCounter: Codable, Hashable, Sendable {
    /// The path as the process saw it.
    public var path: String
    /// The file's inode: another cgroup's file under the same path has a different one.
    public var inode: UInt64

    /// The calling process's counter. Nil if there is none that can be read, as in the root cgroup. Any thread; some system
    /// calls.
    package static func current() -> MemoryCounter? {
        let text = readProcFile("/proc/self/cgroup") ?? ""
        for path in paths(of: text) {
            guard let inode = inode(of: path) else { continue }
            let counter = MemoryCounter(path: path, inode: inode)
            if counter.read() != nil { return counter }
        }
        return nil
    }

    /// Nil if the cgroup is gone, or not visible from here. The path is not trusted, because it comes from a file: only a
    /// control group's counter is opened, and the call never blocks.
    package func read() -> UInt64? {
        guard Self.isCounter(path), let file = try? OpenFile(kernelFile: path, inode: inode),
            let bytes = try? file.readAll(limit: 64 << 10)
        else { return nil }
        return Self.count(in: String(decoding: bytes, as: UTF8.self))
    }

    private static let root = "/sys/fs/cgroup"

    /// Whether the path text can only refer to such a file.
    static func isCounter(_ path: String) -> Bool {
        let names = path.split(separator: "/", omittingEmptySubsequences: false)
        guard path.hasPrefix(root + "/"), !path.utf8.contains(0), !names.contains(".."), let name = names.last else {
            return false
        }
        return name == "memory.events" || name == "memory.oom_control"
    }

    /// The possible paths of the file, from the lines of `/proc/PID/cgroup` (cgroups(7)): `0::/a`, `4:memory:/a`. A container
    /// without its own cgroup namespace is shown a path that is not visible to it; its own cgroup is then the root of the
    /// mounted tree.
    static func paths(of text: String) -> [String] {
        text.split(separator: "\n").flatMap { line -> [String] in
            let fields = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard fields.count == 3, fields[2].hasPrefix("/") else { return [] }
            let path = fields[2] == "/" ? "" : String(fields[2])
            if fields[1].split(separator: ",").contains("memory") {
                return [path, ""].map { "\(root)/memory\($0)/memory.oom_control" }
            }
            return fields[1].isEmpty ? [path, ""].map { "\(root)\($0)/memory.events" } : []
        }
    }

    /// The number after `oom_kill`.
    static func count(in text: String) -> UInt64? {
        for line in text.split(separator: "\n") {
            let words = line.split(separator: " ")
            if words.count == 2, words[0] == "oom_kill" { return UInt64(words[1]) }
        }
        return nil
    }

    private static func inode(of path: String) -> UInt64? {
        var raw = stat()
        guard unsafe stat(path, &raw) == 0 else { return nil }
        return UInt64(raw.st_ino)
    }
}

extension OpenFile {
    /// Opens a regular file of the kernel by its full path, if it has this inode. It is checked before it is opened for
    /// reading: opening a device can have side effects, and a pipe waits for its other end.
    fileprivate init(kernelFile path: String, inode: UInt64) throws(ReportError) {
        // O_PATH of open(2), which the C library's module does not define.
        let pathOnly: Int32 = 0o10_000_000
        let look = OpenFile(
            owning: try systemCall(path: path) { unsafe open(path, pathOnly | O_NOFOLLOW | O_CLOEXEC) },
            path: path
        )
        let status = try look.status()
        guard status.isRegular, status.inode == inode else { throw ReportError(.notAFile, path: path) }
        let number = look.descriptor
        self.init(
            owning: try systemCall(path: path) {
                unsafe open("/proc/self/fd/\(number)", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
            },
            path: path
        )
    }
}
