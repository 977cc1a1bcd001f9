internal import Glibc

/// The report directories that a path stands for: one per host, service or run, however deep they lie.
///
/// As of the moment it was made; a value without state otherwise.
package struct ReportTree: Sendable {
    /// More directories than these are not looked into.
    static let limit = 4096

    /// In order of their paths: those that reports, run records or live records lie in. The path itself where there is none, or where it cannot
    /// be read: whoever reads it says why.
    package let directories: [String]
    /// Directories below that could not be looked into. Reports in them are missing from all that is read.
    package let failures: [ReportError]

    /// Links to directories are followed. A directory that several names lead to counts once.
    package init(_ path: String) {
        var walk = Walk(path)
        while walk.visitsNext() {}
        directories = walk.found.isEmpty ? [path] : walk.found.sorted()
        failures = walk.failures
    }

    /// The same directory under two names would be counted twice.
    package static func resolved(_ path: String) -> String {
        guard let name = unsafe realpath(path, nil) else { return path }
        defer { unsafe free(name) }
        return unsafe String(cString: name)
    }
}

private struct Walk {
    private(set) var found: [String] = []
    private(set) var failures: [ReportError] = []
    private let top: String
    private var left: [String]
    private var known: Set<DirectoryIdentity> = []

    init(_ path: String) { (top, left) = (path, [path]) }

    /// Looks into one directory more. False when there is none, or when there are too many.
    mutating func visitsNext() -> Bool {
        guard let path = left.popLast() else { return false }
        do throws(ReportError) {
            try visit(path)
        } catch let error where path == top || error.code == .missingDirectory || error.code == .notADirectory {
            // The first is told by whoever reads it; the others went away, or are links to files.
        } catch {
            failures.append(error)
        }
        guard known.count + left.count <= ReportTree.limit else {
            failures.append(ReportError(.tooManyDirectories, path: top))
            return false
        }
        return true
    }

    private mutating func visit(_ path: String) throws(ReportError) {
        let directory = try OpenDirectory(path: path)
        guard known.insert(try directory.identity()).inserted else { return }
        var holdsReports = false
        var below: [String] = []
        try directory.forEachEntry { entry in
            if entry.mayBeDirectory {
                // One more than is permitted shows that there are too many.
                if below.count <= ReportTree.limit, directory.leadsToDirectory(entry) {
                    below.append(directory.filePath(entry.name))
                }
            } else if !holdsReports {
                holdsReports = ReportFileName(entry.name) != nil || LiveRecordName(entry.name) != nil
            }
        }
        if holdsReports { found.append(path) }
        left += below
    }
}
