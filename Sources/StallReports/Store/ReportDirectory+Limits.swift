extension ReportDirectory {
    /// Removes the oldest finished files until the limits hold, or only files that must stay, or are not ours, are left.
    func keepLimits(sparing written: ReportFileName) {
        let reader = ReportReader(path: path)
        guard let directory = try? OpenDirectory(path: path), let files = try? StoredFile.all(in: directory) else {
            return
        }
        var usage = Usage(files)
        for file in files where file.name != written && usage.exceeds(limits, by: file) {
            guard reader.isFinished(file.name, in: directory) else { continue }
            do throws(ReportError) {
                try directory.remove(file.name.description)
            } catch {
                // Gone already, by another process that shares the directory; or not ours to remove.
                if error.code != .missingFile { continue }
            }
            usage.subtract(file)
        }
    }
}

/// A regular file with a name of ours.
private struct StoredFile {
    let name: ReportFileName
    let size: Int

    /// All of them, the oldest first.
    static func all(in directory: borrowing OpenDirectory) throws(ReportError) -> [StoredFile] {
        var files: [StoredFile] = []
        for name in try directory.names().compactMap({ ReportFileName($0) }).sorted() {
            guard let status = directory.status(of: name.description), status.isRegular else { continue }
            files.append(StoredFile(name: name, size: status.size))
        }
        return files
    }
}

/// How much of its limits a directory uses.
private struct Usage {
    private var counts: [ReportFileName.Content: Int] = [:]
    private var bytes = 0

    init(_ files: [StoredFile]) {
        for file in files {
            counts[file.name.content, default: 0] += 1
            bytes += file.size
        }
    }

    /// Whether a limit is broken that removing `file` would help.
    func exceeds(_ limits: ReportDirectory.Limits, by file: StoredFile) -> Bool {
        let most = file.name.content == .stall ? limits.maxReports : limits.maxRuns
        return bytes > limits.maxBytes || counts[file.name.content, default: 0] > most
    }

    mutating func subtract(_ file: StoredFile) {
        counts[file.name.content, default: 0] -= 1
        bytes -= file.size
    }
}
