import Foundation

/// A directory of its own, gone with the value.
final class TemporaryDirectory: Sendable {
    let path: String

    init() {
        let directory = FileManager.default.temporaryDirectory.appending(path: "stall-monitor-tests-\(UUID())")
        do {
            try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        } catch {
            preconditionFailure("tests need a temporary directory: \(error)")
        }
        path = directory.path
    }

    deinit {
        try? FileManager.default.removeItem(atPath: path)
    }
}
