internal import Glibc

// Directories of report directories: one per host, service or run.

extension ReportReader {
    /// How far below a directory report directories are looked for: a directory per cluster, service and host.
    static let nestedLevels = 3
    /// More report directories than these are not looked for.
    static let nestedLimit = 4096

    /// The report directories that a path stands for: itself if reports or run records are in it, or else those below it that have some. Itself
    /// also where nothing is found, or nothing can be read: whoever reads it says why. Links are not followed.
    package static func directories(at path: String) -> [String] {
        var found: [String] = []
        collect(path, levels: nestedLevels, &found)
        return found.isEmpty ? [path] : found.sorted()
    }

    private static func collect(_ path: String, levels: Int, _ found: inout [String]) {
        guard found.count < nestedLimit, let directory = try? OpenDirectory(path: path),
            let names = try? directory.names()
        else { return }
        if names.contains(where: isStored) {
            found.append(path)
        } else if levels > 0 {
            for name in names {
                guard let status = directory.described(name), status.st_mode & S_IFMT == S_IFDIR else { continue }
                collect(directory.filePath(name), levels: levels - 1, &found)
            }
        }
    }

    /// Whether a monitor writes files of such a name.
    private static func isStored(_ name: String) -> Bool {
        ReportFileName(name) != nil || LiveRecordName(name) != nil
    }
}
