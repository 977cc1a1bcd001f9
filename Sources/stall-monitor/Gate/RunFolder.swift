import Glibc
import StallReading
import StallReports

/// A folder with one subfolder per run.
final class RunFolder {
    let path: String
    private(set) var runs = 0
    /// Whether the folder itself was made here.
    private let isOwn: Bool

    /// - Parameter keep: An empty or missing folder; nil creates a temporary one.
    init(_ keep: String?) throws(CommandFailure) {
        guard let keep else {
            (path, isOwn) = (try Folder.makeTemporary(named: "stall-gate"), true)
            return
        }
        path = keep
        isOwn = unsafe mkdir(keep, 0o700) == 0
        if isOwn { return }
        guard errno == EEXIST, Folder.exists(keep) else {
            throw CommandFailure("--keep \(keep): \(errorText(errno))")
        }
        guard Folder.names(in: keep).isEmpty else {
            throw CommandFailure(
                "--keep \(keep): it is not empty; give an empty folder, or a new name"
            )
        }
    }

    /// Creates the next run's folder.
    func next() throws(CommandFailure) -> String {
        runs += 1
        let folder = "\(path)/run-\(runs)"
        guard unsafe mkdir(folder, 0o700) == 0 else {
            throw CommandFailure("\(folder): \(errorText(errno))")
        }
        return folder
    }

    /// Removes the reports of all runs. Other files in the folder stay.
    func remove() { while runs > 0 { removeLast() } }

    /// Removes the reports of the last run, and with the first one the folder, unless the user has made it or other files are in it.
    func removeLast() {
        for kind in ["inside", "outside"] { Self.removeReports(in: "\(path)/run-\(runs)/\(kind)") }
        unsafe _ = rmdir("\(path)/run-\(runs)")
        runs -= 1
        if runs == 0, isOwn { unsafe _ = rmdir(path) }
    }

    /// Removes a report directory.
    static func removeReports(in folder: String) {
        for name in Folder.names(in: folder) { unsafe _ = unlink("\(folder)/\(name)") }
        unsafe _ = rmdir(folder)
    }
}
