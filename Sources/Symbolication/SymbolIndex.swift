import CElf

/// The functions of one module, sorted by address. Their names stay in the file until they are needed.
struct SymbolIndex {
    fileprivate struct Entry {
        var address: UInt64
        /// The lower 28 bits are the size, clamped; the upper four are the rank.
        private var sizeAndRank: UInt32
        /// The offset in the string table.
        var name: UInt32

        init(_ symbol: Elf64_Sym) {
            address = symbol.st_value
            sizeAndRank = UInt32(min(symbol.st_size, 0xfff_ffff)) | symbol.rank << 28
            name = symbol.st_name
        }

        var size: UInt64 { UInt64(sizeAndRank & 0xfff_ffff) }
        /// A lower rank is preferred.
        var rank: UInt32 { sizeAndRank >> 28 }
    }

    struct Match: Hashable, Sendable {
        var name: String
        /// An address in the file.
        var start: UInt64
    }

    let file: ELFFile
    /// Whether the table is the full one, and not the part that a stripped module keeps for the loader.
    let isFull: Bool
    private var entries: [Entry] = []
    private var names: Range<Int> = 0..<0

    /// The memory that this uses, besides the file's image.
    var byteCount: Int { entries.count * MemoryLayout<Entry>.stride }
    var isEmpty: Bool { entries.isEmpty }

    /// - Returns: The function that contains the address, never merely the nearest one: in a stripped library that would be a
    ///   wrong one.
    func match(_ address: UInt64, _ allowance: Allowance) throws(SymbolProblem) -> Match? {
        guard let entry = index(around: address).map({ entries[$0] }),
            try reaches(from: entry, to: address, allowance), let name = try plainName(of: entry, allowance)
        else { return nil }
        return Match(name: name, start: entry.address)
    }

    /// - Returns: The address range of the function that contains the address.
    func range(around address: UInt64) -> Range<UInt64>? {
        index(around: address).map { entries[$0].address..<end(ofEntryAt: $0) }
    }

    private func index(around address: UInt64) -> Int? {
        let index = entries.partitioningIndex { $0.address > address } - 1
        return index >= 0 && address < end(ofEntryAt: index) ? index : nil
    }

    /// Without its version.
    private func plainName(of entry: Entry, _ allowance: Allowance) throws(SymbolProblem) -> String? {
        let name = try file.image.text(at: names.lowerBound + Int(entry.name), allowance)
        return name.map { String($0.prefix { $0 != "@" }) }
    }

    /// Hand-written assembly often gives no size. The function then extends to the next symbol, but not beyond its section: after
    /// that of `_init`, which has no size, comes a linkage table, which has no symbols.
    private func end(ofEntryAt index: Int) -> UInt64 {
        let entry = entries[index]
        guard entry.size == 0 else { return entry.address + min(entry.size, .max - entry.address) }
        let next = index + 1 < entries.count ? entries[index + 1].address : .max
        return min(next, file.codeRanges.first { $0.contains(entry.address) }?.upperBound ?? .max)
    }

    /// Whether a function reaches an address before its end. Not if it has no size, and according to the unwind table another
    /// function starts in between: that one has been stripped of its symbol.
    private func reaches(
        from entry: Entry,
        to address: UInt64,
        _ allowance: Allowance
    ) throws(SymbolProblem) -> Bool {
        guard entry.size == 0, let start = try file.unwoundFunctionStart(around: address, allowance) else {
            return true
        }
        return start <= entry.address
    }

    /// - Returns: The address ranges of the functions with these names, as far as there are any.
    func ranges(of wanted: Set<String>, _ allowance: Allowance) throws(SymbolProblem) -> [String: Range<UInt64>] {
        var found: [String: Range<UInt64>] = [:]
        for index in entries.indices where found.count < wanted.count {
            let entry = entries[index]
            // Each step reads a name, which in a damaged file may be the same long one for all.
            try allowance.step()
            guard let name = try plainName(of: entry, allowance), wanted.contains(name), found[name] == nil else {
                continue
            }
            found[name] = range(around: entry.address)
        }
        return found
    }
}

extension RandomAccessCollection where Index == Int {
    /// The index of the first element that is behind a border, as all after it must be; the end if none is.
    func partitioningIndex(where isBehind: (Element) -> Bool) -> Int {
        var (low, high) = (startIndex, endIndex)
        while low < high {
            let middle = low + (high - low) / 2
            if isBehind(self[middle]) { high = middle } else { low = middle + 1 }
        }
        return low
    }
}

// Reading

extension SymbolIndex {
    /// Reads .symtab, or .dynsym if that was stripped. Nil without either.
    init?(_ file: ELFFile, _ allowance: Allowance) throws(SymbolProblem) {
        let full = file.sections.first { $0.type == UInt32(SHT_SYMTAB) && !$0.range.isEmpty }
        guard let table = full ?? file.sections.first(where: { $0.type == UInt32(SHT_DYNSYM) && !$0.range.isEmpty }),
            file.sections.indices.contains(table.link)
        else { return nil }
        self.file = file
        isFull = full != nil
        names = file.sections[table.link].range
        entries = try file.functions(in: table, allowance)
        entries.sort { $0.address < $1.address }
        keepBestKnown()
    }

    /// If several names share an address, one is kept.
    private mutating func keepBestKnown() {
        var count = 0
        // By index: a loop over the entries would retain, and so copy, all of them.
        for index in entries.indices where Int(entries[index].name) < names.count {
            let entry = entries[index]
            if count > 0, entries[count - 1].address == entry.address {
                let kept = entries[count - 1]
                if (entry.rank, entry.name) < (kept.rank, kept.name) { entries[count - 1] = entry }
            } else {
                entries[count] = entry
                count += 1
            }
        }
        entries.removeLast(entries.count - count)
    }
}

extension ELFFile {
    /// Symbols that are functions with an address and a name, unsorted. Reads the table in pieces that are not kept.
    fileprivate func functions(in table: Section, _ allowance: Allowance) throws(SymbolProblem) -> [SymbolIndex.Entry] {
        var found: [SymbolIndex.Entry] = []
        let stride = MemoryLayout<Elf64_Sym>.stride
        let symbolsRead = 2048
        let piece = symbolsRead * stride
        var bytes: [UInt8] = []
        // Reserved memory that is not written uses no pages; growing the array would write all of it again. A damaged file can
        // claim a table of any size. What exceeds the budget is noticed one piece later, without growing.
        let entrySize = MemoryLayout<SymbolIndex.Entry>.stride
        found.reserveCapacity(min(table.range.count / stride, allowance.memoryLeft / entrySize + symbolsRead))
        for start in Swift.stride(from: table.range.lowerBound, to: table.range.upperBound, by: piece) {
            let before = found.count
            try image.passBytes(start..<min(start + piece, table.range.upperBound), into: &bytes, allowance)
            unsafe bytes.withUnsafeBytes { bytes in
                for offset in Swift.stride(from: 0, through: bytes.count - stride, by: stride) {
                    let symbol = unsafe bytes.loadUnaligned(fromByteOffset: offset, as: Elf64_Sym.self)
                    if symbol.isDefinedFunction { found.append(SymbolIndex.Entry(symbol)) }
                }
            }
            try allowance.spend((found.count - before) * entrySize)
        }
        return found
    }
}

extension Elf64_Sym {
    fileprivate var isDefinedFunction: Bool {
        let type = Int32(st_info & 0xf)
        return (type == STT_FUNC || type == STT_GNU_IFUNC) && st_shndx != UInt16(SHN_UNDEF) && st_value != 0
            && st_name != 0
    }

    /// A lower rank is preferred: global, weak, local; with a size before without one.
    fileprivate var rank: UInt32 {
        let binding = Int32(st_info >> 4)
        return (binding == STB_GLOBAL ? 0 : binding == STB_WEAK ? 2 : 4) + (st_size == 0 ? 1 : 0)
    }
}
