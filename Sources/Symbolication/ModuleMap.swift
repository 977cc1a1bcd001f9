import CElf
import Glibc

/// A process's mappings, from `/proc/PID/maps` at one moment. Not from the loader: a stalled thread may hold its lock.
struct ModuleMap: Sendable {
    struct Mapping: Sendable, Hashable {
        var range: Range<UInt>
        var fileOffset: UInt
        var inode: UInt64
        /// As in the maps: may end with the mark of a deleted file.
        var path: String
    }

    /// Sorted by address.
    let mappings: [Mapping]

    init(parsing text: [UInt8]) {
        mappings = text.split(separator: UInt8(ascii: "\n")).compactMap(Mapping.init)
    }

    /// Empty if it cannot be read.
    init(of process: ProcessDirectory) {
        self.init(parsing: readWholeFile(process.path + "/maps") ?? [])
    }

    /// How far behind its file's header a mapping may be. The loader maps a file in one piece, which permissions divide into a few. A process can
    /// be made whose mappings, as many as 65,000, are all of one file: then each address would take that many steps.
    static let mostParts = 1024

    /// - Returns: The mapping with the start of the file, its ELF header, for the mapping around the address.
    func headerMapping(around address: UInt) -> Mapping? {
        guard let index = indexOfMapping(around: address), mappings[index].isModule else { return nil }
        let path = mappings[index].path
        return mappings[...index].suffix(Self.mostParts + 1).last { $0.fileOffset == 0 && $0.path == path }
    }

    func contains(_ address: UInt) -> Bool { indexOfMapping(around: address) != nil }

    private func indexOfMapping(around address: UInt) -> Int? {
        let index = mappings.partitioningIndex { $0.range.upperBound > address }
        return index < mappings.count && mappings[index].range.contains(address) ? index : nil
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

    /// Where the file may be found. It may have been replaced under its name since it was loaded, which the caller has to
    /// check.
    func candidatePaths(in process: ProcessDirectory) -> [String] {
        if path == process.executable { return [process.path + "/exe"] }
        let bounds = "\(String(range.lowerBound, radix: 16))-\(String(range.upperBound, radix: 16))"
        let exact = "\(process.path)/map_files/\(bounds)"  // needs a privilege
        // A process with another root directory inside our own tree has its paths relative to our root.
        return process.isOwn ? [plainPath, exact] : [process.file(plainPath), plainPath, exact]
    }
}

private func hexadecimal(_ digits: ArraySlice<UInt8>) -> UInt? {
    UInt(String(decoding: digits, as: UTF8.self), radix: 16)
}

/// The first page of a loaded module in memory: it distinguishes one build from another.
struct ModuleImage: Sendable, Hashable {
    static let pageSize = 4096

    /// ELF header, program headers and, with all common linkers, the build id.
    let firstPage: [UInt8]
    /// The offset added to the file's addresses.
    let loadBase: UInt
    let buildID: String?
    /// The end of the loaded part.
    let end: UInt

    /// Nil if this is not an ELF module for this machine, or has just been unmapped.
    init?(at start: UInt, in memory: borrowing ProcessMemory) {
        guard let page = memory.read(start, count: Self.pageSize), let headers = programHeaders(in: page),
            let first = headers.first(where: { $0.p_type == UInt32(PT_LOAD) && $0.p_offset == 0 })
        else { return nil }
        firstPage = page
        let base = start &- UInt(first.p_vaddr)
        loadBase = base
        end =
            headers.filter { $0.p_type == UInt32(PT_LOAD) }.map { base &+ UInt($0.p_vaddr &+ $0.p_memsz) }.max()
            ?? start
        var found: String?
        for note in headers where note.p_type == UInt32(PT_NOTE) && found == nil {
            let size = min(Int(clamping: note.p_filesz), Self.pageSize)
            found = memory.read(base &+ UInt(note.p_vaddr), count: size).flatMap(buildID(inNotes:))
        }
        buildID = found
    }
}

/// - Returns: The headers, if the page starts an ELF file with this machine's word length and byte order, and contains all of
///   them.
private func programHeaders(in page: [UInt8]) -> [Elf64_Phdr]? {
    guard let header = page.load(Elf64_Ehdr.self, at: 0), Array(page.prefix(4)) == [0x7f, 0x45, 0x4c, 0x46],
        header.e_ident.4 == UInt8(ELFCLASS64), header.e_phentsize == MemoryLayout<Elf64_Phdr>.size
    else { return nil }
    var headers: [Elf64_Phdr] = []
    for index in 0..<Int(header.e_phnum) {
        let offset = Int(clamping: header.e_phoff) &+ index * MemoryLayout<Elf64_Phdr>.size
        guard let next = page.load(Elf64_Phdr.self, at: offset) else { return nil }
        headers.append(next)
    }
    return headers
}

/// A note is three words (lengths of name and value, type), the name, the value, each padded to four bytes: elf(5).
func buildID(inNotes notes: [UInt8]) -> String? {
    var at = 0
    while let header = notes.load(Elf64_Nhdr.self, at: at) {
        let name = at + MemoryLayout<Elf64_Nhdr>.size
        let value = name + (Int(header.n_namesz) + 3) & ~3
        let end = value + Int(header.n_descsz)
        guard end <= notes.count else { return nil }
        if header.n_type == UInt32(NT_GNU_BUILD_ID), notes[name..<value].elementsEqual([0x47, 0x4e, 0x55, 0]) {
            return notes[value..<end].map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
        }
        at = (end + 3) & ~3
    }
    return nil
}

extension [UInt8] {
    /// - Returns: Nil if the value is not completely inside.
    fileprivate func load<T: BitwiseCopyable>(_ type: T.Type, at offset: Int) -> T? {
        guard offset >= 0, offset <= count - MemoryLayout<T>.size else { return nil }
        return unsafe withUnsafeBytes { unsafe $0.loadUnaligned(fromByteOffset: offset, as: type) }
    }
}
