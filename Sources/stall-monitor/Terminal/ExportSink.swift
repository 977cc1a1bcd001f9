import Glibc
import StallReports

/// Where an export goes: standard output, or a file that takes its name only when it is whole.
struct ExportSink: ~Copyable {
    private let path: String?
    private let partial: String?
    private let descriptor: Int32

    /// - Throws: where the file cannot be made.
    init(path: String?) throws(CommandFailure) {
        self.path = path
        guard let path else {
            (partial, descriptor) = (nil, STDOUT_FILENO)
            return
        }
        // A device, a pipe, or what a link leads to is written to as it is: none of them may give way to a file.
        var status = stat()
        let isOther = unsafe lstat(path, &status) == 0 && status.st_mode & S_IFMT != S_IFREG
        partial = isOther ? nil : "\(path).\(getpid()).partial"
        // Left by a process of the same number that was killed.
        if let partial { _ = unsafe unlink(partial) }
        let flags = isOther ? O_WRONLY | O_TRUNC : O_WRONLY | O_CREAT | O_EXCL
        descriptor = unsafe open(partial ?? path, flags | O_CLOEXEC, 0o644)
        if descriptor < 0 { throw Self.failure(path) }
    }

    deinit {
        guard path != nil else { return }
        close(descriptor)
        // It is there only where something went wrong.
        if let partial { _ = unsafe unlink(partial) }
    }

    func write(_ bytes: [UInt8]) throws(CommandFailure) {
        guard let path else { return try Output.write(bytes) }
        let number = Output.writeAll(bytes, to: descriptor)
        if number != 0 { throw Self.failure(path, number) }
    }

    /// Gives the file its name.
    func finish() throws(CommandFailure) {
        guard let path, let partial else { return }
        if unsafe rename(partial, path) != 0 { throw Self.failure(path) }
    }

    private static func failure(_ path: String, _ number: Int32 = errno) -> CommandFailure {
        CommandFailure("cannot write \(path): \(ReportError(.io, errorNumber: number))")
    }
}
