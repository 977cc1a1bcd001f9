import Glibc
import StallReports

/// Files that a command leaves: whole or not at all.
enum OutputFile {
    /// Puts the text under the name, over what was there. Folders are not made.
    static func write(_ text: String, to path: String) throws(CommandFailure) {
        let sink = try ExportSink(path: path)
        try sink.write(Array(text.utf8))
        try sink.finish()
    }

    /// Puts the text behind what is there.
    static func append(_ text: String, to path: String) throws(CommandFailure) {
        let problem = writeWhole(text, to: path, mode: "ae")
        if problem != 0 { throw CommandFailure("cannot write \(path): \(ReportError(.io, errorNumber: problem))") }
    }

    /// Zero, or the errno of what failed.
    private static func writeWhole(_ text: String, to path: String, mode: String = "we") -> Int32 {
        guard let file = unsafe fopen(path, mode) else { return errno }
        let bytes = Array(text.utf8)
        let isWritten = unsafe fwrite(bytes, 1, bytes.count, file) == bytes.count
        let problem = isWritten ? 0 : errno
        return unsafe fclose(file) == 0 ? problem : errno
    }

    /// Whether anything has the name.
    static func exists(_ path: String) -> Bool { unsafe access(path, F_OK) == 0 }

    /// A file that people or this command wrote, up to a size in bytes.
    static func read(_ path: String, limit: Int) throws(CommandFailure) -> [UInt8] {
        guard let file = unsafe fopen(path, "re") else {
            throw unsafe CommandFailure("\(path): \(String(cString: strerror(errno)))")
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
