import Glibc
package import StallReports

/// The report directories at or below a path: one per host, service or run, at any depth.
///
/// It shows the directories as of its creation, and has no other state.
package struct ReportTree: Sendable {
    /// The greatest number of directories that are searched.
    static let limit = 4096

    /// Sorted by path: the directories that contain reports, run records or live records. The path itself if there is none, or
    /// if it cannot be read: reading it then gives the reason.
    package let directories: [String]
    /// Errors of directories that could not be searched. Their reports are missing from all results.
    package let failures: [ReportError]

    /// Links to directories are followed. A directory with several names counts once.
    ///
    /// - Parameter known: The listing of a directory, if it is known without reading the directory.
    package init(_ path: String, known: (String) -> DirectoryListing? = { _ in nil }) {
        var walk = Walk(path)
        while walk.visitsNext(known) {}
        directories = walk.found.isEmpty ? [path] : walk.found.sorted()
        failures = walk.failures
    }

    /// A directory under two names would otherwise be counted twice.
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
    private var known: Set<FileIdentity> = []

    init(_ path: String) { (top, left) = (path, [path]) }

    /// Searches one more directory. False if there is none, or if there are too many.
    mutating func visitsNext(_ listing: (String) -> DirectoryListing?) -> Bool {
        guard let path = left.popLast() else { return false }
        do throws(ReportError) {
            try visit(path, listing)
        } catch let error where path != top && error.code == .missingDirectory && path.contains("\u{FFFD}") {
            failures.append(ReportError(.nameNotUTF8, path: path))
        } catch let error where path == top || error.code == .missingDirectory || error.code == .notADirectory {
            // An error of the first is reported when it is read; the others were removed, or are links to files.
        } catch {
            failures.append(error)
        }
        guard known.count + left.count <= ReportTree.limit else {
            failures.append(ReportError(.tooManyDirectories, path: top))
            return false
        }
        return true
    }

    private mutating func visit(_ path: String, _ listing: (String) -> DirectoryListing?) throws(ReportError) {
        let directory = try OpenDirectory(path: path)
        guard known.insert(try directory.identity()).inserted else { return }
        var names = listing(path)
        if names == nil { names = try DirectoryListing(reading: directory, sortsStalls: false) }
        if names?.holdsReports == true { found.append(path) }
        for name in names?.below ?? [] { left.append(directory.filePath(name)) }
    }
}
