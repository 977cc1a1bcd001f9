import Glibc
import StallReading
import StallReports

/// A report that is given by itself, not as one of a report directory: in a file of any name, or on standard input.
enum SingleReport: Hashable {
    case standardInput
    case file(String)

    /// Nil if the argument of `show` means something else: a stall or a fault of a directory, a directory, or a collector.
    init?(_ argument: String) {
        if ["-", "/dev/stdin"].contains(argument) {
            self = .standardInput
            return
        }
        // A file that is named like part of an id, or 'latest', is given by a path.
        let isPath = argument.contains("/") || StallChoice(argument) == nil && OutputFile.exists(argument)
        guard isPath, !Folder.exists(argument), !CollectorCopy.isAddress(argument) else { return nil }
        // A report in its directory is read there, with the live record of its process. That reader follows no link.
        if ReportPlace(argument).only != nil, !Self.isLink(argument) { return nil }
        self = .file(argument)
    }

    /// - Throws: Why it is no report, or cannot be read.
    func read() throws(CommandFailure) -> StallReport {
        do throws(ReportError) {
            return try StallReport(outsideDirectory: try bytes())
        } catch {
            throw CommandFailure("\(VisibleText.of(name, limit: 500)): \(Self.reason(error))")
        }
    }

    private var name: String { if case .file(let path) = self { path } else { "standard input" } }

    private func bytes() throws(ReportError) -> [UInt8] {
        let limit = ReportReader.maximumFileSize
        switch self {
        case .standardInput:
            // A copy: the standard stream itself stays open.
            let descriptor = try systemCall(path: nil) { fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0) }
            return try OpenFile(owning: descriptor, path: name).readAll(limit: limit)
        case .file(let path):
            return try Self.open(path).readAll(limit: limit)
        }
    }

    /// Opens a regular file, or what a link to one leads to, without waiting for the other end of a pipe.
    private static func open(_ path: String) throws(ReportError) -> OpenFile {
        // This comes first: opening a device can have side effects.
        var status = stat()
        try systemCall(path: nil) { unsafe stat(path, &status) }
        guard status.st_mode & S_IFMT == S_IFREG else { throw ReportError(.notAFile) }
        let flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC
        let file = OpenFile(owning: try systemCall(path: nil) { unsafe Glibc.open(path, flags) }, path: path)
        guard try file.status().isRegular else { throw ReportError(.notAFile) }
        return file
    }

    private static func isLink(_ path: String) -> Bool {
        var status = stat()
        return unsafe lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK
    }

    /// The store's own texts advise to remove what does not belong into a report directory. This file belongs to the user.
    private static func reason(_ error: ReportError) -> String {
        let detail = error.detail.map { " (\($0))" } ?? ""
        return switch error.code {
        case .torn: "this is no report: it is empty or cut off"
        case .malformed: "this is no report of a stall\(detail)"
        case .unsupportedSchema: "this is no report of a stall that this version reads\(detail)"
        case .tooLarge: "this is no report: it is larger than \(ReportReader.maximumFileSize >> 20) MiB"
        case .tooDeep: "this is no report: its JSON is nested too deep"
        case .notAFile: "this is no regular file; 'show -' reads a report from a pipe"
        default: error.errorNumber.map(errorText) ?? error.description
        }
    }
}
