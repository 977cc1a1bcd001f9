import Foundation
import Testing

/// An external program, and files for it.
enum Tool {
    static func exists(_ name: String) -> Bool { path(of: name) != nil }

    /// Why a test of `reads` is skipped.
    static let missing: Comment = "its reader is not installed: scripts/test --all installs it"

    /// Whether the Python that `scripts/setup --all` installs has a module.
    static func reads(_ module: String) -> Bool {
        exists(readers) && (try? run(readers, ["-c", "import \(module)"]).status) == 0
    }

    static let readers = URL(filePath: #filePath).deletingLastPathComponent()
        .appending(path: "../../.build-readers/bin/python3").standardized.path

    private static func path(of name: String) -> String? {
        if name.hasPrefix("/") { return FileManager.default.isExecutableFile(atPath: name) ? name : nil }
        return ["/usr/bin", "/usr/local/bin", "/bin"].map { "\($0)/\(name)" }.first {
            FileManager.default.isExecutableFile(atPath: $0)
        }
    }

    static func run(_ name: String, _ arguments: [String], input: Data = Data()) throws -> (
        status: Int32, output: String
    ) {
        let (output, source) = (try File(Data(), suffix: "out"), try File(input, suffix: "in"))
        let process = Process()
        process.executableURL = path(of: name).map { URL(filePath: $0) }
        process.arguments = arguments
        process.standardInput = try FileHandle(forReadingFrom: URL(filePath: source.path))
        let handle = try FileHandle(forWritingTo: URL(filePath: output.path))
        (process.standardOutput, process.standardError) = (handle, FileHandle.nullDevice)
        try process.run()
        process.waitUntilExit()
        let text = String(decoding: try Data(contentsOf: URL(filePath: output.path)), as: UTF8.self)
        return (process.terminationStatus, text)
    }

    /// A file that is removed when this object is freed.
    final class File {
        let path: String

        init(_ data: Data, suffix: String) throws {
            path = FileManager.default.temporaryDirectory.appending(path: "export-\(UUID()).\(suffix)").path
            try data.write(to: URL(filePath: path))
        }

        deinit { try? FileManager.default.removeItem(atPath: path) }
    }
}
