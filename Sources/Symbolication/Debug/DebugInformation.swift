#if Symbols
    import CElfUtils

    /// Lines and inlined calls of one file, from its DWARF.
    ///
    /// libdw's own lookup by address uses `.debug_aranges`, which Swift's compiler does not write, so units are indexed here by the
    /// ranges that they declare themselves. A unit's functions and lines are read when an address is in it, and then kept.
    @safe final class DebugInformation {
        let file: ELFFile
        /// libelf's handle on the file's image.
        private let elf: OpaquePointer
        let dwarf: OpaquePointer
        private let sections: Sections
        private var units: [DebugUnit] = []
        /// Sorted by address.
        private var ranges: [UnitRange] = []

        private struct UnitRange {
            var low: UInt64
            var high: UInt64
            var unit: Int32
        }

        /// The memory used by libdw and this object, besides the file's image. libdw does not report it, so it is computed from the
        /// sizes of its structures.
        var byteCount: Int {
            units.reduce(sections.inflated) { $0 + $1.byteCount } + ranges.count * MemoryLayout<UnitRange>.stride
        }

        /// Nil for a file without debug information.
        init?(_ file: ELFFile, _ allowance: Allowance) throws(SymbolProblem) {
            guard file.hasDebugInformation else { return nil }
            self.file = file
            try allowance.spend(file.sections.count * Self.sectionCost)
            sections = try Sections(of: file, allowance)
            let handles = unsafe try Self.open(file)
            unsafe (elf, dwarf) = unsafe handles
            try readUnits(allowance)
        }

        deinit {
            unsafe _ = dwarf_end(dwarf)
            unsafe _ = elf_end(elf)
        }

        /// libelf's structure for a section.
        private static let sectionCost = 256

        @unsafe private static func open(_ file: ELFFile) throws(SymbolProblem) -> (OpaquePointer, OpaquePointer) {
            let damaged = SymbolProblem(.damaged, path: file.image.path)
            let start = unsafe file.image.base.assumingMemoryBound(to: CChar.self)
            guard elf_version(UInt32(EV_CURRENT)) != UInt32(EV_NONE),
                let elf = unsafe elf_memory(start, file.image.size)
            else { throw damaged }
            guard unsafe elf_kind(elf) == ELF_K_ELF, let dwarf = unsafe dwarf_begin_elf(elf, DWARF_C_READ, nil) else {
                unsafe _ = elf_end(elf)
                throw damaged
            }
            return unsafe (elf, dwarf)
        }

        /// - Returns: The calls at the address, the innermost first, the function itself last; empty if no unit contains it.
        func calls(at address: UInt64, _ allowance: Allowance) throws(SymbolProblem) -> [DebugCall] {
            guard let index = unit(at: address) else { return [] }
            let reader = DebugReader(self, sections.info, allowance)
            try units[index].read(reader, sections.line)
            return try units[index].calls(at: address, reader)
        }

        /// Like ``calls(at:_:)``, without compiler-generated code. If the innermost call has no line at the address, uses the
        /// nearest line that it has in `function`. If it has none at all, uses its caller's.
        func calls(
            at address: UInt64,
            nearest side: DebugUnit.Side,
            in function: Range<UInt64>,
            _ allowance: Allowance
        ) throws(SymbolProblem) -> [DebugCall] {
            let calls = Array(try calls(at: address, allowance).drop(while: \.isMadeUp))
            guard calls.first?.location == nil, let index = unit(at: address) else { return calls }
            let reader = DebugReader(self, sections.info, allowance)
            var callers: [DebugCall] = []
            for row in try units[index].rows(side, address, in: function, reader) {
                // Other calls inlined there are not at the address.
                let near = try units[index].calls(at: row, reader).commonCalls(with: calls)
                guard near.first?.location != nil else { continue }
                if near.count >= calls.count { return near }
                if callers.isEmpty { callers = near }
            }
            return callers.isEmpty ? calls : callers
        }

        private func unit(at address: UInt64) -> Int? {
            let next = ranges.partitioningIndex { $0.low > address }
            guard next > 0, address < ranges[next - 1].high else { return nil }
            return Int(ranges[next - 1].unit)
        }

        /// The unit that contains an entry that another unit refers to: a function that was inlined across units.
        func unitRange(around offset: Int) -> Range<Int>? {
            let index = units.partitioningIndex { $0.range.upperBound > offset }
            return index < units.count && units[index].range.contains(offset) ? units[index].range : nil
        }
    }

    extension DebugCall {
        /// Whether it is compiler-generated, an adapter between two calling conventions, and in no source.
        fileprivate var isMadeUp: Bool {
            guard location == nil, let name, Demangler.language(of: name) == .swift else { return false }
            return Demangler.swiftModule(of: name) == nil
        }
    }

    extension [DebugCall] {
        /// The outer calls that two addresses of one function have in common.
        fileprivate func commonCalls(with others: [DebugCall]) -> [DebugCall] {
            let common = zip(reversed(), others.reversed()).prefix { $0.name == $1.name }.count
            // At some addresses the function itself has no entry.
            return suffix(Swift.max(1, common))
        }
    }

    // Units

    extension DebugInformation {
        private func readUnits(_ allowance: Allowance) throws(SymbolProblem) {
            let code = file.codeRanges
            let reader = DebugReader(self, sections.info, allowance)
            var previous: OpaquePointer?
            var start = sections.info?.lowerBound ?? 0
            while true {
                try allowance.step()
                let end = try unitEnd(start, allowance)
                var unit: OpaquePointer?
                var entry = unsafe Dwarf_Die()
                var version: Dwarf_Half = 0
                let result = unsafe dwarf_get_units(dwarf, previous, &unit, &version, nil, &entry, nil)
                guard result == 0 else { break }
                let range = start..<max(start, end)
                unsafe units.append(DebugUnit(entry, range))
                try allowance.spend(DebugUnit.cost)
                // After each unit: in a damaged file all of them may have the same list of ranges, of any length.
                let known = ranges.count
                for next in unsafe try reader.unitRanges(of: entry, version: version, sections.ranges) {
                    try allowance.step()
                    guard code.isEmpty || code.contains(where: { $0.contains(next.lowerBound) }) else { continue }
                    ranges.append(UnitRange(low: next.lowerBound, high: next.upperBound, unit: Int32(units.count - 1)))
                }
                try allowance.spend((ranges.count - known) * MemoryLayout<UnitRange>.stride)
                unsafe previous = unsafe unit
                start = range.upperBound
            }
            ranges.sort { $0.low < $1.low }
        }

        /// Loads a unit's header and first entry.
        private func unitEnd(_ start: Int, _ allowance: Allowance) throws(SymbolProblem) -> Int {
            guard let info = sections.info else { return start }
            try file.image.load(start..<min(start + 1024, info.upperBound), allowance)
            return min(try file.image.endOfContribution(at: start, allowance) ?? info.upperBound, info.upperBound)
        }
    }

    extension FileImage {
        /// A unit and a line program begin with their length: DWARF 5, 7.4.
        func endOfContribution(at start: Int, _ allowance: Allowance) throws(SymbolProblem) -> Int? {
            guard let short = try value(UInt32.self, at: start, allowance) else { return nil }
            guard short == 0xffff_ffff else { return start + 4 + Int(short) }
            guard let long = try value(UInt64.self, at: start + 4, allowance) else { return nil }
            let (end, isOver) = (start + 12).addingReportingOverflow(Int(clamping: long))
            return isOver ? nil : end
        }
    }

    /// The sections that are read. Nil if libdw inflates a section into its own memory: then all of it is loaded.
    private struct Sections {
        let info: Range<Int>?
        let line: Range<Int>?
        let ranges: Range<Int>?
        /// Bytes that libdw holds for compressed sections.
        let inflated: Int

        /// Small, or read at unpredictable places: loaded as a whole.
        private static let whole = ["abbrev", "str_offsets", "addr", "ranges", "rnglists", "line_str"]
        /// Loaded piece by piece.
        private static let piecewise = ["info", "line", "str"]

        init(of file: ELFFile, _ allowance: Allowance) throws(SymbolProblem) {
            var inflated = 0
            for section in file.sections where Self.name(section, isIn: Self.whole + Self.piecewise) {
                if section.isCompressed {
                    guard allowance.inflates else { throw SymbolProblem(.compressed, path: file.image.path) }
                    let size = try Self.inflatedSize(section, file, allowance)
                    // Each separately: the sum of claimed sizes may overflow.
                    try allowance.spend(size)
                    inflated += size
                } else if Self.name(section, isIn: Self.piecewise) {
                    continue
                }
                // libdw skips a compressed section that it cannot inflate: those that are not loaded.
                try file.image.load(section.range, allowance)
            }
            self.inflated = inflated
            let plain = { (name: String) in file.section(name).flatMap { $0.isCompressed ? nil : $0.range } }
            (info, line, ranges) = (plain(".debug_info"), plain(".debug_line"), plain(".debug_ranges"))
        }

        private static func name(_ section: ELFFile.Section, isIn names: [String]) -> Bool {
            names.contains { section.name == ".debug_\($0)" || section.name == ".zdebug_\($0)" }
        }

        /// As claimed by the section's header: `Elf64_Chdr`, or `ZLIB` and eight bytes, most significant first.
        private static func inflatedSize(
            _ section: ELFFile.Section,
            _ file: ELFFile,
            _ allowance: Allowance
        ) throws(SymbolProblem) -> Int {
            let start = section.range.lowerBound
            if section.flags & UInt64(SHF_COMPRESSED) != 0 {
                return Int(clamping: try file.image.value(Elf64_Chdr.self, at: start, allowance)?.ch_size ?? 0)
            }
            return Int(clamping: try file.image.value(UInt64.self, at: start + 4, allowance)?.bigEndian ?? 0)
        }
    }
#else
    /// Replaces the reader of lines and inlined calls, which needs libdw and the trait `Symbols`. Without that trait every file
    /// is treated as one without debug information. The command adds lines and inlined calls to the reports.
    struct DebugInformation {
        var byteCount: Int { 0 }

        enum Side { case before, behind }

        init?(_ file: ELFFile, _ allowance: Allowance) throws(SymbolProblem) { return nil }

        func calls(at address: UInt64, _ allowance: Allowance) throws(SymbolProblem) -> [DebugCall] { [] }

        func calls(
            at address: UInt64,
            nearest side: Side,
            in function: Range<UInt64>,
            _ allowance: Allowance
        ) throws(SymbolProblem) -> [DebugCall] { [] }
    }
#endif
