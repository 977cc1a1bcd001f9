import Glibc

/// What is mapped where, from `/proc/PID/maps` at one moment. Not from the loader: a stalled thread may hold its lock.
struct ModuleMap: Sendable {
    struct Mapping: Sendable, Hashable {
        var range: Range<UInt>
        var fileOffset: UInt
        var inode: UInt64
        /// As in the file: may end with the mark for a deleted one.
        var path: String
    }

    /// By address.
    private let mappings: [Mapping]

    init(parsing text: [UInt8]) {
        mappings = text.split(separator: UInt8(ascii: "\n")).compactMap(Mapping.init)
    }

    /// Empty if it cannot be read.
    init(of process: ProcessDirectory) {
        self.init(parsing: readWholeFile(process.path + "/maps") ?? [])
    }

    /// - Returns: the mapping with the start of the file, its ELF header, that belongs to the mapping around the address.
    func headerMapping(around address: UInt) -> Mapping? {
        guard let index = indexOfMapping(around: address), mappings[index].isModule else { return nil }
        let path = mappings[index].path
        return mappings[...index].last { $0.path == path && $0.fileOffset == 0 }
    }

    private func indexOfMapping(around address: UInt) -> Int? {
        var low = 0
        var high = mappings.count
        while low < high {
            let middle = (low + high) / 2
            if mappings[middle].range.upperBound <= address { low = middle + 1 } else { high = middle }
        }
        return low < mappings.count && mappings[low].range.contains(address) ? low : nil
    }
}

extension ModuleMap.Mapping {
    /// A line is `start-end permissions offset device inode path`: proc(5).
    fileprivate init?(line: ArraySlice<UInt8>) {
        let fields = line.split(separator: UInt8(ascii: " "), maxSplits: 5)
        guard fields.count >= 5 else { return nil }
        let bounds = fields[0].split(separator: UInt8(ascii: "-"))
        guard bounds.count == 2, let start = hexadecimal(bounds[0]), let end = hexadecimal(bounds[1]), start < end,
            let offset = hexadecimal(fields[2]), let inode = UInt64(String(decoding: fields[4], as: UTF8.self))
        else { return nil }
        let path = fields.count == 6 ? fields[5].drop { $0 == UInt8(ascii: " ") } : []
        self.init(range: start..<end, fileOffset: offset, inode: inode, path: String(decoding: path, as: UTF8.self))
    }

    private static let vdso = "[vdso]"
    private static let deletedMark = " (deleted)"

    var isVDSO: Bool { path == Self.vdso }
    var isModule: Bool { path.hasPrefix("/") || isVDSO }
    var plainPath: String { path.hasSuffix(Self.deletedMark) ? String(path.dropLast(Self.deletedMark.count)) : path }

    /// Where the file may be found: it may have been replaced under its name since it was loaded, which the caller has to check.
    func candidatePaths(in process: ProcessDirectory) -> [String] {
        if path == process.executable { return [process.path + "/exe"] }
        let bounds = "\(String(range.lowerBound, radix: 16))-\(String(range.upperBound, radix: 16))"
        let exact = "\(process.path)/map_files/\(bounds)"  // needs a privilege
        // A process below another root directory of our own tree has its paths from our root.
        return process == .own ? [plainPath, exact] : [process.file(plainPath), plainPath, exact]
    }
}

private func hexadecimal(_ digits: ArraySlice<UInt8>) -> UInt? {
    UInt(String(decoding: digits, as: UTF8.self), radix: 16)
}
