#if Symbols
    import CElfUtils

    /// Reads entries for one call: ensures that what libdw is about to read has been loaded, and that libdw opens no other files.
    @safe struct DebugReader {
        let information: DebugInformation
        /// Nil if libdw has all of it in its own memory.
        let info: Range<Int>?
        let allowance: Allowance

        init(_ information: DebugInformation, _ info: Range<Int>?, _ allowance: Allowance) {
            (self.information, self.info, self.allowance) = (information, info, allowance)
        }

        var image: FileImage { information.file.image }

        /// - Returns: The non-empty address ranges; none for code that the linker has dropped.
        func ranges(of entry: Dwarf_Die) throws(SymbolProblem) -> [Range<UInt64>] {
            var entry = unsafe entry
            var found: [Range<UInt64>] = []
            var (base, low, high): (Dwarf_Addr, Dwarf_Addr, Dwarf_Addr) = (0, 0, 0)
            var position = 0
            while true {
                try allowance.step()
                position = unsafe dwarf_ranges(&entry, position, &base, &low, &high)
                guard position > 0 else { return found }
                if low > 0, low < high { found.append(low..<high) }
            }
        }

        /// Like ``ranges(of:)``, for a unit's first entry. A server has some ten thousand such ranges, and libdw takes a
        /// microsecond for each: up to DWARF 4 the list consists of pairs of addresses, which are read here.
        func unitRanges(
            of entry: Dwarf_Die,
            version: UInt16,
            _ section: Range<Int>?
        ) throws(SymbolProblem) -> [Range<UInt64>] {
            guard version < 5, let section, let offset = unsafe number(Int(DW_AT_ranges), of: entry),
                offset < section.count, unsafe attribute(Int(DW_AT_high_pc), of: entry) == nil
            else { return unsafe try ranges(of: entry) }
            var entry = unsafe entry
            var base: Dwarf_Addr = 0
            unsafe _ = dwarf_lowpc(&entry, &base)
            var found: [Range<UInt64>] = []
            for place in stride(from: section.lowerBound + offset, through: section.upperBound - 16, by: 16) {
                try allowance.step()
                let low = unsafe (image.base + place).loadUnaligned(as: UInt64.self)
                let high = unsafe (image.base + place + 8).loadUnaligned(as: UInt64.self)
                if low == 0, high == 0 { break }
                if low == UInt64.max {
                    base = high
                } else if low &+ base > 0, low &+ base < high &+ base {
                    found.append(low &+ base..<high &+ base)
                }
            }
            return found
        }

        func attribute(_ name: Int, of entry: Dwarf_Die) -> Dwarf_Attribute? {
            var entry = unsafe entry
            var attribute = unsafe Dwarf_Attribute()
            return unsafe dwarf_attr(&entry, UInt32(name), &attribute) != nil ? attribute : nil
        }

        func number(_ name: Int, of entry: Dwarf_Die) -> Int? {
            guard var attribute = unsafe attribute(name, of: entry) else { return nil }
            var value: Dwarf_Word = 0
            return unsafe dwarf_formudata(&attribute, &value) == 0 ? Int(exactly: value) : nil
        }

        func text(_ name: Int, of entry: Dwarf_Die) throws(SymbolProblem) -> String? {
            guard var attribute = unsafe attribute(name, of: entry), unsafe !attribute.isInOtherFile,
                // libdw only computes where the text is; it may not be loaded yet.
                let text = unsafe dwarf_formstring(&attribute)
            else { return nil }
            guard let offset = unsafe image.offset(of: UnsafeRawPointer(text)) else {
                return unsafe String(boundedCString: text)
            }
            return try image.text(at: offset, allowance)
        }

        /// The entry to which an attribute refers, also in another unit.
        func reference(_ name: Int, of entry: Dwarf_Die) throws(SymbolProblem) -> Dwarf_Die? {
            guard var attribute = unsafe attribute(name, of: entry), unsafe !attribute.isInOtherFile else { return nil }
            var target = unsafe Dwarf_Die()
            guard unsafe dwarf_formref_die(&attribute, &target) != nil, let address = unsafe target.addr else {
                return nil
            }
            if info != nil, let offset = unsafe image.offset(of: address),
                let unit = information.unitRange(around: offset)
            {
                try image.load(unit, allowance)
            }
            return unsafe target
        }

        /// The linker's name of a function, or the source name if it has no other. Inlined and separate copies refer to the
        /// original.
        func functionName(_ entry: Dwarf_Die) throws(SymbolProblem) -> (name: String?, original: Dwarf_Die) {
            var entry = unsafe entry
            var plain: String?
            for _ in 0..<8 {
                if let found = unsafe try text(Int(DW_AT_linkage_name), of: entry) {
                    return unsafe (found, entry)
                }
                if plain == nil { plain = unsafe try text(Int(DW_AT_name), of: entry) }
                var next = unsafe try reference(Int(DW_AT_abstract_origin), of: entry)
                if unsafe next == nil { unsafe next = unsafe try reference(Int(DW_AT_specification), of: entry) }
                guard let next = unsafe next else { break }
                unsafe entry = unsafe next
            }
            return unsafe (plain, entry)
        }

        /// Visits the direct children in order, until `visit` returns false.
        func children(of entry: Dwarf_Die, _ visit: (Dwarf_Die) throws(SymbolProblem) -> Bool) throws(SymbolProblem) {
            var parent = unsafe entry
            var child = unsafe Dwarf_Die()
            guard unsafe dwarf_child(&parent, &child) == 0 else { return }
            while true {
                try allowance.step()
                let goesOn = unsafe try visit(child)
                var next = unsafe Dwarf_Die()
                guard goesOn, unsafe dwarf_siblingof(&child, &next) == 0 else { return }
                unsafe child = unsafe next
            }
        }
    }

    extension Dwarf_Attribute {
        /// Whether the value is in a file that several symbol files share. libdw would search for that file itself.
        fileprivate var isInOtherFile: Bool {
            [DW_FORM_GNU_ref_alt, DW_FORM_GNU_strp_alt, DW_FORM_ref_sup4, DW_FORM_ref_sup8, DW_FORM_strp_sup]
                .contains { unsafe UInt32($0) == UInt32(form) }
        }
    }

    extension Dwarf_Die {
        var tag: Int {
            var entry = unsafe self
            return unsafe Int(dwarf_tag(&entry))
        }

        func contains(_ address: UInt64) -> Bool {
            var entry = unsafe self
            return unsafe dwarf_haspc(&entry, address) == 1
        }
    }
#endif
