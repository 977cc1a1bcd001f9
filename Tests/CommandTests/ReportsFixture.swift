import Foundation
import Glibc
import StallReports

/// A report directory of the test's own, removed with it; it does not exist before the first write.
final class ReportsFixture: Sendable {
    let root: String
    var path: String { root + "/reports" }
    var store: ReportDirectory { ReportDirectory(path: path) }

    /// - Parameter inMemory: Keeps it off the disks. A monitor that ends waits some seconds for a slow disk, and then does without it: a test
    ///   of what a whole run has left would depend on the disk's speed.
    init(inMemory: Bool = false) throws {
        let folder = inMemory ? Self.memory : nil
        root = "\(folder ?? "/tmp")/stall-command-\(ULID.make())"
        try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: true)
    }

    /// The system's folder in memory. Nil if there is none, or if programs in it cannot be run.
    private static let memory: String? = {
        let path = "/dev/shm"
        var system = statvfs()
        guard unsafe access(path, W_OK | X_OK) == 0, unsafe statvfs(path, &system) == 0 else { return nil }
        // ST_NOEXEC, which Swift does not import.
        return system.f_flag & 8 == 0 ? path : nil
    }()

    deinit { try? FileManager.default.removeItem(atPath: root) }

    /// Writes a file with any content under a report's name.
    func plant(_ bytes: some Sequence<UInt8>) throws {
        try Data(bytes).write(to: URL(filePath: "\(path)/\(ReportFileName(.stall, .make()))"))
    }
}
