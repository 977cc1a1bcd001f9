import CElfUtils

/// The functions of one module, sorted by address. Their names stay in the file until they are asked for.
struct SymbolIndex {
    private struct Entry {
        var address: UInt64
        var size: UInt32
        /// Place in the table of names.
        var name: UInt32
    }

    struct Match: Hashable, Sendable {
        var name: String
        /// In the file's terms.
        var start: UInt64
    }

    let file: ELFFile
    /// Whether the table is the whole one, and not what a stripped module keeps for the loader.
    let isFull: Bool
    private var entries: [Entry] = []
    private var names: Range<Int> = 0..<0

    /// What this takes up in memory, besides the file's image.
    var byteCount: Int { entries.count * MemoryLayout<Entry>.stride }
    var isEmpty: Bool { entries.isEmpty }

    /// - Returns: the function that the address lies in, never merely the nearest one: in a stripped library that is a wrong one.
    func match(_ address: UInt64, _ allowance: Allowance) throws(SymbolProblem) -> Match? {
        let index = firstIndex(above: address) - 1
        guard index >= 0 else { return nil }
        let entry = entries[index]
        // Hand-written assembly often gives no size; it then reaches to the next symbol.
        guard entry.size == 0 || address - entry.address < UInt64(entry.size),
            let name = try file.image.text(at: names.lowerBound + Int(entry.name), allowance)
        else { return nil }
        return Match(name: String(name.prefix { $0 != "@" }), start: entry.address)
    }

    private func firstIndex(above address: UInt64) -> Int {
        var low = 0
        var high = entries.count
        while low < high {
            let middle = (low + high) / 2
            if entries[middle].address <= address { low = middle + 1 } else { high = middle }
        }
        return low
    }
}

// Reading

extension SymbolIndex {
    /// Reads .symtab, or where that is stripped .dynsym. Nil without either.
    init?(_ file: ELFFile, _ allowance: Allowance) throws(SymbolProblem) {
        let full = file.sections.first { $0.type == UInt32(SHT_SYMTAB) && !$0.range.isEmpty }
        guard let table = full ?? file.sections.first(where: { $0.type == UInt32(SHT_DYNSYM) && !$0.range.isEmpty }),
            file.sections.indices.contains(table.link)
        else { return nil }
        self.file = file
        isFull = full != nil
        names = file.sections[table.link].range
        try collect(file.functions(in: table, allowance))
        try allowance.spend(byteCount)
    }

    private mutating func collect(_ functions: [Elf64_Sym]) {
        // By address, and where several names share one, the best known first.
        let sorted = functions.sorted { ($0.st_value, $0.rank, $0.st_name) < ($1.st_value, $1.rank, $1.st_name) }
        entries.reserveCapacity(sorted.count)
        for symbol in sorted where entries.last?.address != symbol.st_value && Int(symbol.st_name) < names.count {
            let size = UInt32(clamping: symbol.st_size)
            entries.append(Entry(address: symbol.st_value, size: size, name: symbol.st_name))
        }
    }
}

extension ELFFile {
    /// Symbols that are functions with an address and a name. Reads the table in pieces that are not kept.
    fileprivate func functions(in table: Section, _ allowance: Allowance) throws(SymbolProblem) -> [Elf64_Sym] {
        var found: [Elf64_Sym] = []
        let stride = MemoryLayout<Elf64_Sym>.stride
        let piece = 2048 * stride
        for start in Swift.stride(from: table.range.lowerBound, to: table.range.upperBound, by: piece) {
            let bytes = try image.passingBytes(start..<min(start + piece, table.range.upperBound), allowance)
            unsafe bytes.withUnsafeBytes { bytes in
                for offset in Swift.stride(from: 0, through: bytes.count - stride, by: stride) {
                    let symbol = unsafe bytes.loadUnaligned(fromByteOffset: offset, as: Elf64_Sym.self)
                    if symbol.isDefinedFunction { found.append(symbol) }
                }
            }
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

    /// Lower is better known: global, weak, local; one with a size before one without.
    fileprivate var rank: Int {
        let binding = Int32(st_info >> 4)
        return (binding == STB_GLOBAL ? 0 : binding == STB_WEAK ? 2 : 4) + (st_size == 0 ? 1 : 0)
    }
}
