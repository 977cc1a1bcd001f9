import Glibc
import StallReports

/// The freezers of a control group (cgroups(7)): version 2, and version 1's `freezer` hierarchy.
package struct ControlGroup: Hashable, Sendable {
    /// The group's directories. Nil if the hierarchy is not mounted. A container's own group looks like the root to it; the real
    /// root, which cannot be frozen, does not have the files.
    var unified: String?
    package var freezer: String?

    package init() {}

    /// The groups of a thread. Reads two files, for which the kernel takes locks that others may hold for long.
    package static func of(threadID: Int32) -> ControlGroup? {
        guard let membership = readControlGroups(in: "/proc/self/task/\(threadID)") else { return nil }
        let mounts = readFile("/proc/thread-self/mountinfo", limit: 1 << 22)
        return ControlGroup(membership: membership, mounts: mounts ?? "")
    }

    /// - Parameters:
    ///   - membership: The text of `/proc/PID/cgroup`.
    ///   - mounts: The text of `/proc/PID/mountinfo` (proc(5)).
    package init(membership: String, mounts: String) {
        self.init(CgroupDirectories(membership: membership, mounts: mounts))
    }

    init(_ directories: CgroupDirectories) {
        unified = directories.unified?.first
        freezer = directories.ofController("freezer")?.first
    }

    /// The total time for which the group was frozen so far. Nil if the kernel does not count it (Linux 6.18 does).
    package var frozenTime: Duration? {
        guard let unified, let text = readSmallFile(unified + "/cgroup.stat.local") else { return nil }
        return keyedNumbers(text)["frozen_usec"].map { .microseconds(Int64(clamping: $0)) }
    }

    /// Whether it is frozen now.
    package var isFrozen: Bool {
        if let unified, let text = readSmallFile(unified + "/cgroup.events"), keyedNumbers(text)["frozen"] == 1 {
            return true
        }
        guard let freezer, let text = readSmallFile(freezer + "/freezer.state") else { return false }
        return text.hasPrefix("FROZEN") || text.hasPrefix("FREEZING")
    }
}

/// The files in which the kernel counts the processor time of this process's cgroup: cgroups(7), both versions, also in a
/// container.
package struct SupplyFiles: Hashable, Sendable {
    /// The process's cgroup and its ancestors that have a limit, innermost first.
    package var limited: [LimitedGroup] = []
    /// The cgroup's `cpu.pressure`. Version 2 only.
    var pressure: String?
    /// The freezers of the process.
    package var freezer = ControlGroup()
    /// Whether single threads can be frozen: version 1 groups threads, version 2 only in a threaded group.
    package var freezesThreads = false

    package struct LimitedGroup: Hashable, Sendable {
        /// Its `cpu.stat`.
        var statistics: String
        /// The limit, in percent of one processor.
        package var quotaPercent: Double
        /// The period after which the limit is renewed.
        package var period = Duration.milliseconds(100)

        /// Its present counts. Nil if the file cannot be read.
        package var throttling: ProcessorSupply.Throttling? {
            readSmallFile(statistics).flatMap(ProcessorSupply.Throttling.init)
        }
    }

    /// How many groups with a limit are read.
    private static let groupLimit = 4

    /// - Parameters:
    ///   - cgroup: The text of `/proc/PID/cgroup`.
    ///   - mounts: The text of `/proc/self/mountinfo`.
    ///   - isOurs: Whether this process is in the same cgroups: see ``CgroupDirectories``.
    ///   - read: Returns the text of a small file.
    package init(cgroup: String, mounts: String, isOurs: Bool = true, read: (String) -> String?) {
        let directories = CgroupDirectories(membership: cgroup, mounts: mounts, isOurs: isOurs)
        let unified = directories.unified
        if let groups = directories.ofController("cpu") {
            limited = Self.limited(groups) { Self.quotaOfVersion1(in: $0, read) }
        } else if let unified {
            limited = Self.limited(unified) { read($0 + "/cpu.max").flatMap(Self.quota) }
        }
        pressure = unified?.first.map { $0 + "/cpu.pressure" }
        freezer = ControlGroup(directories)
        let type = freezer.unified.flatMap { read($0 + "/cgroup.type") }
        freezesThreads = freezer.freezer != nil || type?.contains("threaded") == true
    }

    package init() {}

    private static func limited(_ directories: [String], _ quota: (String) -> Quota?) -> [LimitedGroup] {
        let groups = directories.prefix(32).compactMap { directory in
            quota(directory).map { quota in
                LimitedGroup(
                    statistics: directory + "/cpu.stat",
                    quotaPercent: quota.percent,
                    period: quota.period
                )
            }
        }
        return Array(groups.prefix(groupLimit))
    }

    private typealias Quota = (percent: Double, period: Duration)

    /// Parses `20000 100000`, microseconds of each period, or `max` for no limit.
    private static func quota(_ text: String) -> Quota? {
        let numbers = text.split(whereSeparator: \.isWhitespace).compactMap { Double($0) }
        guard numbers.count == 2, numbers[0] > 0, numbers[1] >= 1, numbers.allSatisfy({ $0 < 1e15 }) else { return nil }
        return (100 * (numbers[0] / numbers[1]), .microseconds(Int64(saturating: numbers[1])))
    }

    private static func quotaOfVersion1(in directory: String, _ read: (String) -> String?) -> Quota? {
        guard let quota = read(directory + "/cpu.cfs_quota_us"), let period = read(directory + "/cpu.cfs_period_us")
        else { return nil }
        return Self.quota(quota + " " + period)
    }
}

/// The directories of a process's control groups (cgroups(7)), both versions, also in a container. Pure.
struct CgroupDirectories {
    /// Its group in each hierarchy, by the hierarchy's controllers. Version 2 names none: its key is empty.
    private var paths: [Substring: Substring] = [:]
    private let mounts: [MountTable.Mount]
    private let isOurs: Bool

    /// - Parameters:
    ///   - membership: The text of `/proc/PID/cgroup`: lines such as `1:cpu,cpuacct:/path`, and for version 2 `0::/path`.
    ///   - mounts: The text of `/proc/self/mountinfo`.
    ///   - isOurs: Whether this process is in the same groups. If not, a group that no mount includes is another container's.
    init(membership: String, mounts: String, isOurs: Bool = true) {
        for line in membership.split(separator: "\n") {
            let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard parts.count == 3 else { continue }
            let controllers = parts[1].split(separator: ",", omittingEmptySubsequences: false)
            for controller in controllers { paths[controller] = parts[2] }
        }
        (self.mounts, self.isOurs) = (MountTable(mounts).mounts, isOurs)
    }

    /// Version 2: the group's directory, then those of the groups around it, as far as they are mounted. Nil if the hierarchy is not.
    var unified: [String]? { directories(to: paths[""], in: mounts.filter { $0.type == "cgroup2" }) }

    /// The same in the hierarchy of a controller of version 1.
    func ofController(_ name: String) -> [String]? {
        let hierarchy = mounts.filter { mount in
            mount.type == "cgroup" && mount.options.split(separator: ",").contains { $0 == name }
        }
        return directories(to: paths[name[...]], in: hierarchy)
    }

    /// Uses the mount that includes the path; otherwise, for our own group, any of them, because in a container the mount may begin at
    /// another directory than the path.
    private func directories(to path: Substring?, in mounts: [MountTable.Mount]) -> [String]? {
        guard let path,
            let mount = mounts.first(where: { $0.relative(path) != nil }) ?? (isOurs ? mounts.first : nil)
        else { return nil }
        let parts = (mount.relative(path) ?? "").split(separator: "/")
        return (0...parts.count).reversed().map { count in
            ([mount.point] + parts.prefix(count).map(String.init)).joined(separator: "/")
        }
    }
}

extension MountTable.Mount {
    /// The path of a control group inside this mount. Nil if the mount does not include it.
    fileprivate func relative(_ path: Substring) -> Substring? {
        guard !path.split(separator: "/").contains("..") else { return nil }
        if root == "/" { return path }
        return path == root || path.hasPrefix(root + "/") ? path.dropFirst(root.count) : nil
    }
}

/// The mounted file systems, from `/proc/self/mountinfo` (proc(5)). Pure.
struct MountTable: Hashable, Sendable {
    struct Mount: Hashable, Sendable {
        var id: Int
        /// The directory of the file system that is mounted.
        var root: String
        /// Where it is mounted.
        var point: String
        /// `ext4`, `nfs4`, `fuse.sshfs`.
        var type: String
        /// The file system's own options.
        var options: String
    }

    var mounts: [Mount]

    /// Parses lines such as `36 35 98:0 /root /point rw,noatime master:1 - ext3 /dev/root rw`; others are left out.
    init(_ text: String) {
        mounts = text.split(separator: "\n").compactMap { line in
            let fields = line.split(separator: " ", omittingEmptySubsequences: false)
            guard fields.count >= 9, let id = Int(fields[0]), let dash = fields[6...].firstIndex(of: "-"),
                dash + 2 < fields.count
            else { return nil }
            return Mount(
                id: id,
                root: Self.unescaped(fields[3]),
                point: Self.unescaped(fields[4]),
                type: String(fields[dash + 1]),
                options: dash + 3 < fields.count ? String(fields[dash + 3]) : ""
            )
        }
    }

    func type(of id: Int) -> String? { mounts.last { $0.id == id }?.type }

    /// Whether a file system of that type depends on another machine, or on a process of this one.
    static func isRemote(_ type: String) -> Bool {
        remote.contains(type) || type.hasPrefix("fuse.") || type == "fuse" || type == "fuseblk"
    }

    private static let remote: Set<String> = [
        "nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre", "afs", "ocfs2", "gfs2", "beegfs",
        "virtiofs", "vboxsf", "davfs", "coda", "orangefs", "gpfs",
    ]

    /// Decodes a field: a blank, tab, line break or backslash is written as a backslash and three octal digits.
    private static func unescaped(_ field: Substring) -> String {
        guard field.contains("\\") else { return String(field) }
        var bytes: [UInt8] = []
        var rest = Array(field.utf8)[...]
        while let byte = rest.popFirst() {
            let digits = rest.prefix(3)
            if byte == UInt8(ascii: "\\"), digits.count == 3,
                let value = UInt8(String(decoding: digits, as: UTF8.self), radix: 8)
            {
                bytes.append(value)
                rest = rest.dropFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
