import CElfUtils
import Glibc

/// The functions of one module, sorted by address, with their names in one block.
struct SymbolIndex: Sendable {
    private struct Entry: Sendable {
        var address: UInt64
        var size: UInt32
        /// Place in `names`, where it ends with a zero.
        var name: UInt32
    }

    struct Match: Sendable {
        var name: String
        /// In the file's terms.
        var start: UInt64
    }

    private var entries: [Entry] = []
    private var names: [UInt8] = []

    /// What this takes up in memory.
    var byteCount: Int { entries.count * MemoryLayout<Entry>.stride + names.count }

    /// - Returns: the function that the address lies in, never merely the nearest one: in a stripped library that is a wrong one.
    func match(_ address: UInt64) -> Match? {
        let index = firstIndex(above: address) - 1
        guard index >= 0 else { return nil }
        let entry = entries[index]
        // Hand-written assembly often gives no size; it then reaches to the next symbol.
        guard entry.size == 0 || address - entry.address < UInt64(entry.size) else { return nil }
        let name = names[Int(entry.name)...].prefix { $0 != 0 }
        return Match(name: String(decoding: name, as: UTF8.self), start: entry.address)
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
    /// - Parameter firstPage: what the file must start with to be the one that was loaded.
    init?(file path: String, startingWith firstPage: [UInt8]) {
        let file = unsafe open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var page = [UInt8](repeating: 0, count: firstPage.count)
        let count = unsafe page.withUnsafeMutableBytes { unsafe pread(file, $0.baseAddress, $0.count, 0) }
        // Memory behind the end of a short file reads as zeroes.
        guard count > 0, page == firstPage, elf_version(UInt32(EV_CURRENT)) != UInt32(EV_NONE) else { return nil }
        // Not mapped: a mapped file that is truncated meanwhile kills whoever reads it.
        guard let elf = unsafe elf_begin(file, ELF_C_READ, nil) else { return nil }
        defer { unsafe _ = elf_end(elf) }
        unsafe self.init(elf)
    }

    /// - Parameter image: a whole ELF file, such as the kernel's [vdso].
    init?(image: [UInt8]) {
        var image = image
        guard elf_version(UInt32(EV_CURRENT)) != UInt32(EV_NONE) else { return nil }
        let index: SymbolIndex? = unsafe image.withUnsafeMutableBytes { bytes in
            guard let start = bytes.baseAddress,
                let elf = unsafe elf_memory(start.assumingMemoryBound(to: CChar.self), bytes.count)
            else { return nil }
            defer { unsafe _ = elf_end(elf) }
            return unsafe SymbolIndex(elf)
        }
        guard let index else { return nil }
        self = index
    }

    @unsafe private init(_ elf: OpaquePointer) {
        guard let table = unsafe SymbolTable(elf) else { return }
        unsafe collect(table)
    }

    @unsafe private mutating func collect(_ table: SymbolTable) {
        var found: [(entry: Entry, rank: Int)] = []
        unsafe found.reserveCapacity(table.symbols.count)
        for index in unsafe table.symbols.indices {
            let symbol = unsafe table.symbols[index]
            guard symbol.isDefinedFunction else { continue }
            let size = UInt32(clamping: symbol.st_size)
            found.append((Entry(address: symbol.st_value, size: size, name: symbol.st_name), symbol.rank))
        }
        // By address, and where several names share one, the best known first.
        found.sort { ($0.entry.address, $0.rank, $0.entry.name) < ($1.entry.address, $1.rank, $1.entry.name) }
        entries.reserveCapacity(found.count)
        for (entry, _) in found where entries.last?.address != entry.address {
            guard let name = unsafe table.name(at: entry.name) else { continue }
            entries.append(Entry(address: entry.address, size: entry.size, name: UInt32(names.count)))
            unsafe names.append(contentsOf: name)
            names.append(0)
        }
    }
}

/// A module's .symtab, or where that is stripped its .dynsym, in libelf's memory: good until the file is closed there.
@unsafe private struct SymbolTable {
    let symbols: UnsafeBufferPointer<Elf64_Sym>
    private let names: UnsafeRawBufferPointer

    init?(_ elf: OpaquePointer) {
        guard let section = unsafe Self.section(SHT_SYMTAB, in: elf) ?? Self.section(SHT_DYNSYM, in: elf) else {
            return nil
        }
        var header = GElf_Shdr()
        guard unsafe gelf_getshdr(section, &header) != nil,
            let symbols = unsafe Self.bytes(of: section),
            let strings = unsafe elf_getscn(elf, Int(header.sh_link)),
            let names = unsafe Self.bytes(of: strings)
        else { return nil }
        unsafe self.symbols = symbols.bindMemory(to: Elf64_Sym.self)
        unsafe self.names = names
    }

    private static func section(_ type: Int32, in elf: OpaquePointer) -> OpaquePointer? {
        var section = unsafe elf_nextscn(elf, nil)
        while let next = unsafe section {
            var header = GElf_Shdr()
            if unsafe gelf_getshdr(next, &header) != nil, header.sh_type == UInt32(type) { return unsafe next }
            unsafe section = elf_nextscn(elf, next)
        }
        return nil
    }

    private static func bytes(of section: OpaquePointer) -> UnsafeRawBufferPointer? {
        guard let data = unsafe elf_getdata(section, nil), let start = unsafe data.pointee.d_buf else { return nil }
        return unsafe UnsafeRawBufferPointer(start: start, count: Int(clamping: data.pointee.d_size))
    }

    /// - Returns: the name without a version, nil for none.
    func name(at offset: UInt32) -> Slice<UnsafeRawBufferPointer>? {
        guard unsafe Int(offset) < names.count else { return nil }
        let name = unsafe names[Int(offset)...].prefix { $0 != 0 && $0 != UInt8(ascii: "@") }
        return unsafe name.isEmpty ? nil : name
    }
}

extension Elf64_Sym {
    fileprivate var isDefinedFunction: Bool {
        let type = Int32(st_info & 0xf)
        return (type == STT_FUNC || type == STT_GNU_IFUNC) && st_shndx != UInt16(SHN_UNDEF) && st_value != 0
    }

    /// Lower is better known: global, weak, local; one with a size before one without.
    fileprivate var rank: Int {
        let binding: [Int32] = [STB_GLOBAL, STB_WEAK]
        return (binding.firstIndex(of: Int32(st_info >> 4)) ?? 2) * 2 + (st_size == 0 ? 1 : 0)
    }
}
