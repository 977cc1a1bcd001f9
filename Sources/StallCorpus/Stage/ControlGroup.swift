import Glibc

/// A control group for the scenario (cgroups(7)), of version 1 or 2.
struct ControlGroup: Sendable {
    let path: String
    private let home: String
    private static let root = "/sys/fs/cgroup"

    /// A group whose processes get this share of one CPU.
    static func withQuota(percent: Int) throws -> ControlGroup {
        if isDirectory(root + "/cpu") {
            let group = try ControlGroup(under: root + "/cpu")
            let isSet =
                writeFile("100000", to: group.path + "/cpu.cfs_period_us")
                && writeFile("\(percent * 1000)", to: group.path + "/cpu.cfs_quota_us")
            return try group.given(isSet, "a quota")
        }
        let group = try ControlGroup(under: root)
        return try group.given(writeFile("\(percent * 1000) 100000", to: group.path + "/cpu.max"), "a quota")
    }

    /// A group that can be frozen.
    static func freezable() throws -> ControlGroup {
        let unified = isDirectory(root + "/unified") ? root + "/unified" : root
        let group = try ControlGroup(under: unified)
        return try group.given(unsafe access(group.path + "/cgroup.freeze", W_OK) == 0, "a freezer")
    }

    private init(under parent: String) throws {
        home = parent
        path = "\(parent)/stall-corpus-\(getpid())"
        guard unsafe mkdir(path, 0o700) == 0 else {
            throw SkippedScenario("no control group under \(parent) (errno \(errno))")
        }
    }

    private func given(_ isSet: Bool, _ what: String) throws -> ControlGroup {
        guard isSet else {
            leave()
            throw SkippedScenario("the control groups of this machine have not \(what)")
        }
        return self
    }

    /// Moves the calling process into the group.
    func enter() throws {
        guard writeFile("\(getpid())", to: path + "/cgroup.procs") else {
            leave()
            throw SkippedScenario("the control group is closed (errno \(errno))")
        }
    }

    /// Moves the process back, and removes the group.
    func leave() {
        writeFile("\(getpid())", to: home + "/cgroup.procs")
        // The last thread may not have left the group yet.
        for _ in 0..<50 where unsafe rmdir(path) != 0 { sleepFor(.milliseconds(10)) }
    }

    private static func isDirectory(_ path: String) -> Bool {
        unsafe access(path + "/cgroup.procs", F_OK) == 0
    }
}
