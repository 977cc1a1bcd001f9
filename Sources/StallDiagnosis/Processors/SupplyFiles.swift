import StallReports

/// The files in which the kernel counts what this process's cgroup gets of the processors: cgroups(7), both versions, also in a
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

        /// Its present counts. Nil where the file cannot be read.
        package var throttling: ProcessorSupply.Throttling? {
            readSmallFile(statistics).flatMap(ProcessorSupply.Throttling.init)
        }
    }

    /// How many groups with a limit are read.
    private static let groupLimit = 4

    /// - Parameters:
    ///   - cgroup: the text of `/proc/self/cgroup`.
    ///   - mounts: the text of `/proc/self/mountinfo`.
    ///   - read: reads the text of a small file.
    package init(cgroup: String, mounts text: String, read: (String) -> String?) {
        let mounts = CgroupMounts(text)
        let paths = Self.paths(in: cgroup)
        if let path = paths.cpu, let mount = mounts.cpu(path) {
            limited = Self.limited(mount, path) { Self.quotaOfVersion1(in: $0, read) }
        } else if let path = paths.unified, let mount = mounts.unified(path) {
            limited = Self.limited(mount, path) { read($0 + "/cpu.max").flatMap(Self.quota) }
        }
        if let path = paths.unified, let mount = mounts.unified(path) {
            pressure = mount.directories(to: path).first.map { $0 + "/cpu.pressure" }
        }
        freezer = ControlGroup(membership: cgroup, mounts: text)
        let type = freezer.unified.flatMap { read($0 + "/cgroup.type") }
        freezesThreads = freezer.freezer != nil || type?.contains("threaded") == true
    }

    package init() {}

    /// Lines such as `1:cpu,cpuacct:/path`, and for version 2 `0::/path`.
    private static func paths(in text: String) -> (cpu: String?, unified: String?) {
        var found: (cpu: String?, unified: String?)
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
            guard parts.count == 3 else { continue }
            if parts[1].split(separator: ",").contains("cpu") { found.cpu = String(parts[2]) }
            if parts[0] == "0" { found.unified = String(parts[2]) }
        }
        return found
    }

    private static func limited(_ mount: CgroupMount, _ path: String, _ quota: (String) -> Quota?) -> [LimitedGroup] {
        let groups = mount.directories(to: path).prefix(32).compactMap { directory in
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

    /// `20000 100000`, microseconds of each period; `max` for no limit.
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

/// The cgroup file systems among the mounts.
private struct CgroupMounts {
    private var versionOne: [CgroupMount] = []
    private var versionTwo: [CgroupMount] = []

    package init(_ text: String) {
        for mount in MountTable(text).mounts {
            let found = CgroupMount(root: mount.root, point: mount.point)
            if mount.type == "cgroup2" { versionTwo.append(found) }
            if mount.type == "cgroup", mount.options.split(separator: ",").contains("cpu") { versionOne.append(found) }
        }
    }

    package func cpu(_ path: String) -> CgroupMount? { Self.best(versionOne, path) }
    func unified(_ path: String) -> CgroupMount? { Self.best(versionTwo, path) }

    /// The mount that includes the path, or else any: in a container the mount may begin elsewhere than the path counts from.
    private static func best(_ mounts: [CgroupMount], _ path: String) -> CgroupMount? {
        mounts.first { $0.relative(path) != nil } ?? mounts.first
    }
}

/// A mounted cgroup file system: the cgroup `root` is at `point`.
private struct CgroupMount {
    var root: String
    package var point: String

    package func relative(_ path: String) -> Substring? {
        guard !path.split(separator: "/").contains("..") else { return nil }
        if root == "/" { return path[...] }
        return path == root || path.hasPrefix(root + "/") ? path.dropFirst(root.count) : nil
    }

    /// The cgroup's directory, then its ancestors, as far as they are mounted.
    func directories(to path: String) -> [String] {
        let parts = (relative(path) ?? "").split(separator: "/")
        return (0...parts.count).reversed().map { ([point] + parts.prefix($0).map(String.init)).joined(separator: "/") }
    }
}
