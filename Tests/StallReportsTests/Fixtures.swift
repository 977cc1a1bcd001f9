import Glibc
import StallReading
import Testing

@testable import StallReports

/// A directory for one test, removed with this object. `path` is the location of the store, which does not exist yet. In memory: on a
/// busy machine some tests would wait for the disk for minutes.
final class TemporaryDirectory: Sendable {
    let root: String
    var path: String { root + "/reports" }
    var store: ReportDirectory { ReportDirectory(path: path) }
    var reader: ReportReader { ReportReader(path: path) }

    init() {
        root = "/dev/shm/stall-reports-\(ULID.make())"
        precondition(unsafe mkdir(root, 0o700) == 0, "no temporary directory")
    }

    deinit { Self.removeTree(root) }

    /// The names in the store.
    var names: [String] { Self.names(in: path) }

    func file(_ name: ReportFileName) -> String { "\(path)/\(name)" }

    /// Puts a file with any content into the store.
    func plant(_ bytes: some Sequence<UInt8>, as name: String) {
        let descriptor = unsafe open("\(path)/\(name)", O_WRONLY | O_CREAT | O_TRUNC, 0o600)
        let array = Array(bytes)
        precondition(unsafe write(descriptor, array, array.count) == array.count, "not planted")
        close(descriptor)
    }

    /// Makes a file this much older.
    func age(_ name: String, bySeconds seconds: Int) {
        var now = timespec()
        unsafe clock_gettime(CLOCK_REALTIME, &now)
        now.tv_sec -= seconds
        let times = [now, now]
        precondition(unsafe utimensat(AT_FDCWD, "\(path)/\(name)", times, 0) == 0, "not aged")
    }

    func mode(of path: String) -> mode_t {
        var status = stat()
        precondition(unsafe lstat(path, &status) == 0, "no such file")
        return status.st_mode & 0o7777
    }

    static func removeTree(_ path: String) {
        for name in names(in: path) { removeTree("\(path)/\(name)") }
        unsafe remove(path)
    }

    static func link(_ path: String) -> String {
        var buffer = [CChar](repeating: 0, count: 256)
        let count = unsafe readlink(path, &buffer, buffer.count)
        return String(decoding: buffer[..<max(0, count)].map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    static func names(in path: String) -> [String] {
        guard let stream = unsafe opendir(path) else { return [] }
        defer { unsafe closedir(stream) }
        var names: [String] = []
        while let entry = unsafe readdir(stream) {
            let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
                unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
            }
            if name != "." && name != ".." { names.append(name) }
        }
        return names.sorted()
    }
}

/// A small file system for the test, in memory. Needs root, like the tests' set-up.
final class MountedDisk {
    let path: String

    init(at path: String, options: String) throws {
        self.path = path
        unsafe mkdir(path, 0o700)
        let readOnly = options == "ro"
        let flags = readOnly ? UInt(MS_RDONLY) : 0
        guard unsafe mount("tmpfs", path, "tmpfs", flags, readOnly ? nil : options) == 0 else {
            throw ReportError(.permissionDenied, path: path, detail: "this test mounts a file system: run it as root")
        }
    }

    /// Whether this process may mount: root may, but not in every container.
    static let isPermitted: Bool = {
        let directory = TemporaryDirectory()
        return (try? MountedDisk(at: directory.root + "/try", options: "size=64k")) != nil
    }()

    deinit { unsafe umount2(path, Int32(MNT_DETACH)) }
}

/// A child that waits until it is killed.
final class ChildProcess {
    let pid: pid_t

    init() throws {
        var pid: pid_t = 0
        let name = unsafe strdup("sleep")
        let argument = unsafe strdup("600")
        defer {
            unsafe free(name)
            unsafe free(argument)
        }
        var arguments: [UnsafeMutablePointer<CChar>?] = unsafe [name, argument, nil]
        let status = unsafe posix_spawn(&pid, "/bin/sleep", nil, nil, &arguments, environ)
        try #require(status == 0)
        self.pid = pid
    }

    /// The identity as the child would record it.
    func identity() throws -> ProcessIdentity {
        let stat = try #require(ProcessStat(pid: pid))
        return ProcessIdentity(
            pid: pid,
            startTicks: stat.startTicks,
            pidNamespace: ProcessIdentity.currentPIDNamespace()
        )
    }

    /// Returns when the child is dead and not yet reaped.
    func killLeavingZombie() {
        kill(pid, SIGKILL)
        var info = unsafe siginfo_t()
        unsafe waitid(P_PID, id_t(pid), &info, WEXITED | WNOWAIT)
    }

    func reap() { waitpid(pid, nil, 0) }

    deinit {
        kill(pid, SIGKILL)
        reap()
    }
}
