import Foundation
import Symbolication

/// This program's line table, as a tool of the system's reads it, and its code.
struct Lines {
    private struct Row {
        var address: UInt
        var line: Int
    }

    private let rows: [Row]
    private let code: FileHandle?

    init() {
        let program = "/proc/self/exe"
        let tool = Process()
        tool.executableURL = URL(fileURLWithPath: "/usr/bin/readelf")
        tool.arguments = [
            "--debug-dump=decodedline", (try? FileManager.default.destinationOfSymbolicLink(atPath: program)) ?? "",
        ]
        let output = Pipe()
        tool.standardOutput = output
        tool.standardError = FileHandle.nullDevice
        code = FileHandle(forReadingAtPath: program)
        guard (try? tool.run()) != nil else {
            rows = []
            return
        }
        let text = String(decoding: output.fileHandleForReading.readDataToEndOfFile(), as: UTF8.self)
        tool.waitUntilExit()
        rows = text.split(separator: "\n").compactMap(Self.row).sorted { $0.address < $1.address }
    }

    /// `Functions.swift    26    0x327d0    x`. A line that is not known is 0 or "-".
    private static func row(_ text: Substring) -> Row? {
        let words = text.split(separator: " ")
        guard words.count >= 3, words[2].hasPrefix("0x"), let address = UInt(words[2].dropFirst(2), radix: 16) else {
            return nil
        }
        return Row(address: address, line: Int(words[1]) ?? 0)
    }

    /// The line of the await that a resume function ends: the last one named before its address is stored.
    ///
    /// - Parameters:
    ///   - resume: its offset in the program's file, which is that of its code in memory.
    ///   - start: where the function around an offset starts.
    func line(resumedAt resume: UInt, start: (UInt) -> UInt?) -> Int? {
        let low = resume - min(resume, UInt(Suspension.reach))
        guard let code, (try? code.seek(toOffset: UInt64(low))) != nil,
            let bytes = try? code.read(upToCount: Int(2 * Suspension.reach))
        else { return nil }
        let places = Suspension.places(of: UInt64(resume), in: [UInt8](bytes), at: UInt64(low))
        let before = places.compactMap { place in
            start(UInt(place)).flatMap { lastLine(from: $0, to: UInt(place)) }
        }
        // A `for await` has no line there, but is the first that goes on.
        return before.first ?? rows.first { $0.address >= resume && $0.line > 0 && start($0.address) == resume }?.line
    }

    private func lastLine(from start: UInt, to end: UInt) -> Int? {
        rows.last { $0.address >= start && $0.address <= end && $0.line > 0 }?.line
    }
}
