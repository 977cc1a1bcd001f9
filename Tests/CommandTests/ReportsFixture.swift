import Foundation
import StallReports

/// A report directory of the test's own, removed with it; it does not exist before the first write.
final class ReportsFixture: Sendable {
    let root: String
    var path: String { root + "/reports" }
    var store: ReportDirectory { ReportDirectory(path: path) }

    init() throws {
        root = "/tmp/stall-command-\(ULID.make())"
        try FileManager.default.createDirectory(atPath: root, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: root) }

    /// Writes a file with any content under a report's name.
    func plant(_ bytes: some Sequence<UInt8>) throws {
        try Data(bytes).write(to: URL(filePath: "\(path)/\(ReportFileName(.stall, .make()))"))
    }
}
