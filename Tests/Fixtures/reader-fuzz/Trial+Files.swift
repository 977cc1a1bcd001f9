import Foundation

extension Trial {
    /// A byte range of each file, including live records, to test bytes that no JSON parser sees.
    mutating func breakFiles(in path: String) throws {
        for name in try FileManager.default.contentsOfDirectory(atPath: path).sorted() where dice.happens(1, in: 2) {
            let file = "\(path)/\(name)"
            guard var bytes = FileManager.default.contents(atPath: file).map({ [UInt8]($0) }), !bytes.isEmpty else {
                continue
            }
            for _ in 0...dice.below(20) { bytes[dice.below(bytes.count)] = UInt8(dice.below(256)) }
            // In place: the live record's lock stays.
            guard let handle = FileHandle(forWritingAtPath: file) else { continue }
            defer { try? handle.close() }
            try handle.write(contentsOf: Data(bytes))
        }
    }
}
