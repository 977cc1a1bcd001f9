internal import Glibc

/// Where the kernel counts the processes of a cgroup that it killed for want of memory: `memory.events` of cgroup v2,
/// `memory.oom_control` of v1 (Documentation/admin-guide/cgroup-v2.rst).
public struct MemoryCounter: Codable, Hashable, Sendable {
    /// As the process saw it.
    public var path: String
    /// The file's inode: another cgroup's file under the same path has another.
    public var inode: UInt64

    /// The calling process's. Nil where there is none to be read, as in the root cgroup. Any thread; some system calls.
    package static func current() -> MemoryCounter? {
        let text = readProcFile("/proc/self/cgroup") ?? ""
        for path in paths(of: text) {
            if let inode = inode(of: path), count(in: readProcFile(path) ?? "") != nil {
                return MemoryCounter(path: path, inode: inode)
            }
        }
        return nil
    }

    /// Nil when the cgroup is gone, or cannot be seen from here.
    package func read() -> UInt64? {
        guard Self.inode(of: path) == inode, let text = readProcFile(path) else { return nil }
        return Self.count(in: text)
    }

    /// Where the file may be, by the lines of `/proc/PID/cgroup` (cgroups(7)): `0::/a`, `4:memory:/a`. A container without a namespace
    /// of its own is shown a path that it does not see; its own cgroup is then the root of what is mounted.
    static func paths(of text: String) -> [String] {
        text.split(separator: "\n").flatMap { line -> [String] in
            let fields = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard fields.count == 3, fields[2].hasPrefix("/") else { return [] }
            let path = fields[2] == "/" ? "" : String(fields[2])
            if fields[1].split(separator: ",").contains("memory") {
                return [path, ""].map { "/sys/fs/cgroup/memory\($0)/memory.oom_control" }
            }
            return fields[1].isEmpty ? [path, ""].map { "/sys/fs/cgroup\($0)/memory.events" } : []
        }
    }

    /// The number behind `oom_kill`.
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
