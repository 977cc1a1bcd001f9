import Glibc
import StallReports

/// The text of a source line, if the file that a report names lies on this machine.
///
/// A report may name any file. Only regular files with a source's ending are opened, and only to show them to whoever runs the command.
enum SourceLines {
    private static let endings: Set<Substring> = [
        "swift", "c", "h", "m", "mm", "cc", "cpp", "cxx", "hpp", "rs", "go", "py", "js", "ts", "java", "rb", "php",
    ]
    /// Larger files are no sources.
    private static let limit = 4 << 20

    /// The line itself, marked, with one before and one after it. Empty where it is not to be had.
    static func around(_ culprit: StallReport.Culprit?, writtenAfter moment: Timestamp? = nil) -> [StyledText] {
        guard let path = culprit?.file, let line = culprit?.line, line > 0,
            let ending = path.split(separator: ".").last, endings.contains(ending),
            let (text, changed) = read(path)
        else { return [] }
        let lines = text.split(separator: "\n", omittingEmptySubsequences: false)
        guard lines.indices.contains(line - 1) else { return [] }
        let shown = max(0, line - 2)...min(lines.count - 1, line)
        let width = String(shown.upperBound + 1).count
        let code = shown.map { index -> StyledText in
            let number = String(index + 1)
            let room = String(repeating: " ", count: width - number.count)
            let source = String(lines[index]).replacing("\t", with: "    ")
            return index == line - 1
                ? "\("▶ \(room)\(number)", .bold)  \(StyledText(source, .bold, limit: 200))"
                : "\("  \(room)\(number)  ", .dim)\(StyledText(source, .dim, limit: 200))"
        }
        let isNewer = moment.map { changed > $0 } ?? false
        return code + (isNewer ? ["\("the file has changed since the stall: the line may be another", .yellow)"] : [])
    }

    private static func read(_ path: String) -> (text: String, changed: Timestamp)? {
        let descriptor = unsafe open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG, status.st_size <= limit else {
            return nil
        }
        var bytes = [UInt8](repeating: 0, count: Int(status.st_size))
        var count = 0
        while count < bytes.count {
            let next = unsafe bytes.withUnsafeMutableBytes { buffer in
                unsafe Glibc.read(descriptor, buffer.baseAddress! + count, buffer.count - count)
            }
            guard next > 0 else { break }
            count += next
        }
        let changed = Timestamp(seconds: Int64(status.st_mtim.tv_sec), nanoseconds: Int64(status.st_mtim.tv_nsec))
        return (String(decoding: bytes.prefix(count), as: UTF8.self), changed)
    }
}
