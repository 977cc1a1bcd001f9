import Foundation
import Glibc
import StallReports
import Synchronization

/// Files that the command reads and writes. A written file is complete or absent.
enum OutputFile {
    /// Writes the text to the file, replacing it, or to standard output if the path is `-`. Does not create folders.
    static func write(_ text: String, to path: String) throws(CommandFailure) {
        let sink = try ExportSink(path: path == "-" ? nil : path)
        try sink.write(Array(text.utf8))
        try sink.finish()
    }

    static func append(_ text: String, to path: String) throws(CommandFailure) {
        guard let file = unsafe fopen(path, "ae") else { throw failure(path) }
        let bytes = Array(text.utf8)
        let written = unsafe fwrite(bytes, 1, bytes.count, file) == bytes.count ? 0 : errno
        let problem = unsafe fclose(file) == 0 ? written : errno
        if problem != 0 { throw failure(path, problem) }
    }

    static func failure(_ path: String, _ number: Int32 = errno) -> CommandFailure {
        CommandFailure("cannot write \(path): \(reason(number))")
    }

    /// Why a file cannot be written, and what to do about it if that is known.
    static func reason(_ number: Int32) -> String {
        switch number {
        case ENOENT: "its folder does not exist; make it, or give another name"
        case EISDIR: "it is a directory; give the name of a file"
        case EBADF: "it is closed; redirect it to a file, or to /dev/null"
        case ENOSPC, EDQUOT: "the disk is full, or a quota is used up"
        default: errorText(number)
        }
    }

    /// Whether the path exists.
    static func exists(_ path: String) -> Bool { unsafe access(path, F_OK) == 0 }

    /// Reads a file of at most `limit` bytes.
    static func read(_ path: String, limit: Int) throws(CommandFailure) -> [UInt8] {
        guard let file = unsafe fopen(path, "re") else {
            throw CommandFailure("\(path): \(errorText(errno))")
        }
        defer { unsafe _ = fclose(file) }
        var (bytes, part): ([UInt8], [UInt8]) = ([], [UInt8](repeating: 0, count: 1 << 16))
        while true {
            let count = unsafe fread(&part, 1, part.count, file)
            bytes += part[..<count]
            guard bytes.count <= limit else { throw CommandFailure("\(path): larger than \(limit >> 20) MiB") }
            if count < part.count { break }
        }
        if unsafe ferror(file) != 0 { throw CommandFailure("\(path): it cannot be read as a file") }
        return bytes
    }
}

/// The destination of an export: standard output, or a file that gets its name only when it is complete.
struct ExportSink: ~Copyable {
    private let path: String?
    private let partial: String?
    private let descriptor: Int32

    /// - Parameter isDiscardedAtExit: Whether a signal that ends the process removes the incomplete file. Otherwise the command calls
    ///   ``discard`` itself.
    /// - Throws: If the file cannot be created.
    init(path: String?, isDiscardedAtExit: Bool = false) throws(CommandFailure) {
        self.path = path
        guard let path else {
            (partial, descriptor) = (nil, STDOUT_FILENO)
            return
        }
        // Devices, pipes and link targets are written to directly: a rename would replace them by a file.
        var status = stat()
        let isOther = unsafe lstat(path, &status) == 0 && status.st_mode & S_IFMT != S_IFREG
        partial = isOther ? nil : "\(path).\(getpid()).partial"
        // A killed process with the same process id may have left it.
        if let partial { _ = unsafe unlink(partial) }
        if let partial, isDiscardedAtExit { TemporaryFiles.removeAtExit(partial) }
        let flags = isOther ? O_WRONLY | O_TRUNC : O_WRONLY | O_CREAT | O_EXCL
        descriptor = unsafe open(partial ?? path, flags | O_CLOEXEC, 0o644)
        if descriptor < 0 { throw OutputFile.failure(path) }
    }

    deinit {
        guard path != nil else { return }
        close(descriptor)
        // The file still exists only if writing failed.
        discard()
    }

    /// Removes the incomplete file. For a process that ends without returning; any thread.
    var discard: @Sendable () -> Void {
        { [partial] in if let partial { _ = unsafe unlink(partial) } }
    }

    func write(_ bytes: [UInt8]) throws(CommandFailure) {
        guard let path else { return try Output.write(bytes) }
        let number = Output.writeAll(bytes, to: descriptor)
        if number != 0 { throw OutputFile.failure(path, number) }
    }

    /// Gives the file its name, after its contents are on the disk: some file systems, such as NFS, say only then that there is no room.
    func finish() throws(CommandFailure) {
        guard let path, let partial else { return }
        do throws(ReportError) {
            try systemCall(path: nil) { fsync(descriptor) }
        } catch {
            throw OutputFile.failure(path, error.errorNumber ?? EIO)
        }
        if unsafe rename(partial, path) != 0 { throw OutputFile.failure(path) }
    }
}

/// Directories of the file system.
enum Folder {
    static func exists(_ path: String) -> Bool {
        var status = stat()
        return unsafe stat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFDIR
    }

    /// The names in the directory, sorted. Empty if it cannot be read.
    static func names(in path: String) -> [String] { ((try? OpenDirectory(path: path).names()) ?? []).sorted() }

    /// Makes one in $TMPDIR, or else in /tmp, and returns its path.
    static func makeTemporary(named name: String) throws(CommandFailure) -> String {
        let place = EnvironmentVariable.value("TMPDIR") ?? "/tmp"
        var template = Array("\(place)/\(name)-XXXXXX".utf8CString)
        guard unsafe mkdtemp(&template) != nil else {
            throw CommandFailure("\(place): no folder can be made there: \(errorText(errno)); set $TMPDIR to another")
        }
        return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

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
