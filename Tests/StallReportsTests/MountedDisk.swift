import Glibc
import StallReports

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
