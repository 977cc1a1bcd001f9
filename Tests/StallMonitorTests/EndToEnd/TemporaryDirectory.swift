import Foundation

/// A directory of the test's own, removed with the value.
final class TemporaryDirectory: Sendable {
    let path: String

    /// - Parameter inMemory: not on a disk: on a busy machine a real disk can delay a report longer than the monitor
    ///   waits.
    init(inMemory: Bool = false) {
        let place = inMemory ? URL(filePath: "/dev/shm") : FileManager.default.temporaryDirectory
        let directory = place.appending(path: "stall-monitor-tests-\(UUID())")
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
