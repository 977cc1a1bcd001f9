import Foundation
import Synchronization

/// Files and directories that are removed when the process ends, even by Ctrl-C. For commands that leave these signals to the system
/// otherwise.
enum TemporaryFiles {
    private static let paths = Mutex([String]())

    /// It need not exist, neither now nor at the end.
    static func removeAtExit(_ path: String) {
        let isFirst = paths.withLock { paths in
            paths.append(path)
            return paths.count == 1
        }
        guard isFirst else { return }
        atexit {
            for path in TemporaryFiles.paths.withLock({ $0 }) { try? FileManager.default.removeItem(atPath: path) }
        }
        _ = signals
    }

    private static let signals = SignalSources([SIGINT, SIGTERM, SIGHUP]) { exit(128 + $0) }
}
