import CElf
import CZlib

/// An ELF file: a module or its symbol file. 64-bit, little-endian, for any processor.
final class ELFFile {
    struct Section: Hashable {
        var name: String
        var type: UInt32
        var flags: UInt64
        var address: UInt64
        /// In the file. Empty for a section without content in the file.
        var range: Range<Int>
        var size: UInt64
        var link: Int

        var isCompressed: Bool { flags & UInt64(SHF_COMPRESSED) != 0 || name.hasPrefix(".zdebug") }
    }

    let image: FileImage
    private(set) var sections: [Section] = []
    private(set) var buildID: String?
    /// The address ranges of code, in the file.
    private(set) var codeRanges: [Range<UInt64>] = []
    /// The processor: `EM_X86_64` and so on.
    let machine: UInt16

    init(_ image: FileImage, _ allowance: Allowance) throws(SymbolProblem) {
        self.image = image
        let damaged = SymbolProblem(.notELF, path: image.path)
        guard let header = try image.value(Elf64_Ehdr.self, at: 0, allowance),
            header.e_ident.0 == 0x7f, header.e_ident.1 == 0x45, header.e_ident.2 == 0x4c, header.e_ident.3 == 0x46,
            header.e_ident.4 == UInt8(ELFCLASS64), header.e_ident.5 == UInt8(ELFDATA2LSB)
        else { throw damaged }
        machine = header.e_machine
        try loadSegments(header, allowance)
        try readSections(header, allowance)
        codeRanges = sections.filter { $0.flags & UInt64(SHF_EXECINSTR) != 0 && $0.address > 0 }
            .map { $0.address..<max($0.address, $0.address &+ $0.size) }
        buildID = try readBuildID(header, allowance)
    }

    convenience init(path: String, _ allowance: Allowance) throws(SymbolProblem) {
        try self.init(FileImage(path: path, allowance), allowance)
    }

    func section(_ name: String) -> Section? { sections.first { $0.name == name } }

    /// Whether it has lines or inlined functions.
    var hasDebugInformation: Bool {
        [".debug_info", ".zdebug_info"].contains { section($0).map { !$0.range.isEmpty } == true }
    }

    /// libelf reads these headers itself.
    private func loadSegments(_ header: Elf64_Ehdr, _ allowance: Allowance) throws(SymbolProblem) {
        let start = Int(clamping: header.e_phoff)
        try image.load(start..<Self.clamped(start, Int(header.e_phnum) * MemoryLayout<Elf64_Phdr>.size), allowance)
    }

    private static func clamped(_ start: Int, _ count: Int) -> Int {
        let (end, isOver) = start.addingReportingOverflow(max(0, count))
        return isOver ? Int.max : end
    }

    private static let mostSections = 1 << 20

    /// In bytes. Longer names of sections are cut: none of those that are read has one.
    private static let longestName = 64

    private func readSections(_ header: Elf64_Ehdr, _ allowance: Allowance) throws(SymbolProblem) {
        let headers = try sectionHeaders(header, allowance)
        // A number that does not fit into the file's header is in the first section's: elf(5).
        let isElsewhere = header.e_shstrndx == UInt16(SHN_XINDEX)
        let names = isElsewhere ? Int(headers.first?.sh_link ?? 0) : Int(header.e_shstrndx)
        guard headers.indices.contains(names) else { return }
        let strings = Int(clamping: headers[names].sh_offset)
        for header in headers {
            try allowance.step()
            let start = min(Int(clamping: header.sh_offset), image.size)
            let count = header.sh_type == UInt32(SHT_NOBITS) ? 0 : Int(clamping: header.sh_size)
            // A damaged file can give each of a million sections the same name of any length.
            let place = Self.clamped(strings, Int(header.sh_name))
            let name = try image.text(at: place, upTo: Self.longestName, allowance) ?? ""
            try allowance.spend(MemoryLayout<Section>.stride + name.utf8.count)
            sections.append(
                Section(
                    name: name,
                    type: header.sh_type,
                    flags: header.sh_flags,
                    address: header.sh_addr,
                    range: start..<min(image.size, Self.clamped(start, count)),
                    size: header.sh_size,
                    link: Int(header.sh_link)
                )
            )
        }
    }

    /// Loads them all: libelf reads them, too.
    private func sectionHeaders(_ header: Elf64_Ehdr, _ allowance: Allowance) throws(SymbolProblem) -> [Elf64_Shdr] {
        let (start, size) = (Int(clamping: header.e_shoff), MemoryLayout<Elf64_Shdr>.size)
        guard start > 0, Int(header.e_shentsize) == size else { return [] }
        // If there are more than 65,279 sections, the number is in the first one: elf(5).
        let first = header.e_shnum == 0 ? try image.value(Elf64_Shdr.self, at: start, allowance) : nil
        let claimed = first.map { Int(clamping: $0.sh_size) } ?? Int(header.e_shnum)
        // libelf believes the number, and takes memory for each.
        guard claimed <= Self.mostSections else { throw SymbolProblem(.notELF, path: image.path) }
        let count = min(claimed, max(0, image.size - start) / size)
        try image.load(start..<start + count * size, allowance)
        var headers: [Elf64_Shdr] = []
        for index in 0..<count {
            guard let next = try image.value(Elf64_Shdr.self, at: start + index * size, allowance) else { break }
            headers.append(next)
        }
        return headers
    }

    /// From the sections; from the segments if there are none. A symbol file's segments may have any offsets.
    private func readBuildID(_ header: Elf64_Ehdr, _ allowance: Allowance) throws(SymbolProblem) -> String? {
        var notes = sections.filter { $0.type == UInt32(SHT_NOTE) }.map(\.range)
        if notes.isEmpty {
            for index in 0..<Int(header.e_phnum) {
                let place = Self.clamped(Int(clamping: header.e_phoff), index * MemoryLayout<Elf64_Phdr>.size)
                guard let segment = try image.value(Elf64_Phdr.self, at: place, allowance) else { break }
                guard segment.p_type == UInt32(PT_NOTE) else { continue }
                let start = Int(clamping: segment.p_offset)
                notes.append(start..<Self.clamped(start, Int(clamping: segment.p_filesz)))
            }
        }
        for range in notes {
            try allowance.checkTime()
            let end = min(range.upperBound, Self.clamped(range.lowerBound, 65_536))
            let bytes = try image.bytes(range.lowerBound..<end, allowance)
            if let found = Symbolication.buildID(inNotes: bytes) { return found }
        }
        return nil
    }
}

/// A module's reference to its symbol file: the name, and the checksum of the whole file.
struct DebugLink: Hashable {
    var name: String
    var checksum: UInt32
}

extension ELFFile {
    /// From `.gnu_debuglink`: a name that ends with a zero and is padded to four bytes, then the checksum. Nil without one.
    func debugLink(_ allowance: Allowance) throws(SymbolProblem) -> DebugLink? {
        guard let section = section(".gnu_debuglink"), section.range.count <= 4096 else { return nil }
        let bytes = try image.bytes(section.range, allowance)
        let name = bytes.prefix { $0 != 0 }
        let place = (name.count + 4) & ~3
        // A name with a slash would lead out of the directories of symbol files.
        guard !name.isEmpty, !name.contains(UInt8(ascii: "/")), place + 4 <= bytes.count else { return nil }
        let checksum = bytes[place..<place + 4].reversed().reduce(UInt32(0)) { $0 << 8 | UInt32($1) }
        return DebugLink(name: String(decoding: name, as: UTF8.self), checksum: checksum)
    }
}

extension FileImage {
    /// The checksum that `.gnu_debuglink` uses, of the whole file: CRC-32 as in zlib.
    func checksum(_ allowance: Allowance) throws(SymbolProblem) -> UInt32 {
        var sum = crc32(0, nil, 0)
        for start in stride(from: 0, to: size, by: 1 << 18) {
            let bytes = try passingBytes(start..<start + (1 << 18), allowance)
            sum = unsafe bytes.withUnsafeBufferPointer { unsafe crc32(sum, $0.baseAddress, UInt32($0.count)) }
        }
        return UInt32(truncatingIfNeeded: sum)
    }
}

// The starts of functions, from the unwind table, which strip(1) keeps.

extension ELFFile {
    /// The start of the function that contains an address, from `.eh_frame_hdr` (Linux Standard Base, 10.6.2): a header, then
    /// pairs of a function's start and its description's, sorted, both relative to the section.
    ///
    /// A part that the compiler has split off counts as a function.
    ///
    /// - Parameter address: An address in the file.
    /// - Returns: Nil below the first function, and without such a table or with another encoding than all linkers write.
    func unwoundFunctionStart(around address: UInt64, _ allowance: Allowance) throws(SymbolProblem) -> UInt64? {
        guard let section = section(".eh_frame_hdr"),
            let header = try image.value(UInt64.self, at: section.range.lowerBound, allowance),
            // Version 1, then the encodings of the pointer, the count and the pairs: the last two are 4 bytes, unsigned and
            // signed.
            header & 0xffff_00ff == UnwindTable.layout
        else { return nil }
        let count = try image.value(UInt32.self, at: section.range.lowerBound + UnwindTable.countOffset, allowance)
        let fitting = (section.range.count - UnwindTable.pairsOffset) / UnwindTable.pairSize
        var (low, high) = (0, min(Int(count ?? 0), fitting))
        var found: UInt64?
        while low < high {
            let middle = (low + high) / 2
            let place = section.range.lowerBound + UnwindTable.pairsOffset + middle * UnwindTable.pairSize
            guard let distance = try image.value(Int32.self, at: place, allowance) else { return nil }
            let start = section.address &+ UInt64(bitPattern: Int64(distance))
            if start <= address { (found, low) = (start, middle + 1) } else { high = middle }
        }
        return found
    }
}

private enum UnwindTable {
    /// `DW_EH_PE_udata4` for the count, `DW_EH_PE_datarel | DW_EH_PE_sdata4` for the pairs.
    static let layout: UInt64 = 0x3b03_0001
    static let countOffset = 8
    static let pairsOffset = 12
    static let pairSize = 8
}
