#if Symbols
    import CElfUtils

    /// One compilation unit of the debug information.
    @safe struct DebugUnit {
        /// The memory that one unit uses here and in libdw.
        static let cost = 512

        private let entry: Dwarf_Die
        /// In the file.
        let range: Range<Int>
        /// Sorted by address. Nil until they are read.
        private var functions: [Function]?
        private var lineCount = 0
        /// To which relative names of source files refer.
        private var directory = ""

        private struct Function {
            var low: UInt64
            var high: UInt64
            /// The address of the entry in libdw's memory.
            var entry: UInt
        }

        init(_ entry: Dwarf_Die, _ range: Range<Int>) {
            unsafe self.entry = unsafe entry
            self.range = range
        }

        var byteCount: Int {
            Self.cost + directory.utf8.count + (functions?.count ?? 0) * MemoryLayout<Function>.stride
                + lineCount * Self.lineCost
        }

        /// libdw's structure for a line, and its place in the list of them.
        private static let lineCost = 48
    }

    // Reading

    extension DebugUnit {
        /// Reads the functions and lines if that was not done before.
        mutating func read(_ reader: DebugReader, _ line: Range<Int>?) throws(SymbolProblem) {
            guard functions == nil else { return }
            try reader.image.load(range, reader.allowance)
            try readLines(reader, line)
            var found: [Function] = []
            unsafe try collect(below: entry, reader, depth: 0, into: &found)
            found.sort { $0.low < $1.low }
            functions = found
        }

        private mutating func readLines(_ reader: DebugReader, _ section: Range<Int>?) throws(SymbolProblem) {
            // libdw reads both, and prefixes the directory to some file names.
            unsafe _ = try reader.text(Int(DW_AT_name), of: entry)
            directory = unsafe try reader.text(Int(DW_AT_comp_dir), of: entry) ?? ""
            if let section, let offset = unsafe reader.number(Int(DW_AT_stmt_list), of: entry), offset < section.count {
                let start = section.lowerBound + offset
                let claimed = try reader.image.endOfContribution(at: start, reader.allowance) ?? start
                // A damaged length must not exceed the budget.
                let end = max(start, min(claimed, section.upperBound))
                try reader.image.load(start..<end, reader.allowance)
                // At most one line per byte; usually one in four.
                try reader.allowance.spend((end - start) / 4 * Self.lineCost)
            }
            var entry = unsafe entry
            var lines: OpaquePointer?
            unsafe _ = dwarf_getsrclines(&entry, &lines, &lineCount)
            try reader.allowance.checkTime()
        }

        /// Swift's functions are below a module and types, and closures below their function; C++'s are below namespaces.
        private func collect(
            below parent: Dwarf_Die,
            _ reader: DebugReader,
            depth: Int,
            into found: inout [Function]
        ) throws(SymbolProblem) {
            guard depth < 64 else { return }
            unsafe try reader.children(of: parent) { child throws(SymbolProblem) in
                switch unsafe child.tag {
                case Int(DW_TAG_subprogram):
                    let ranges = unsafe try reader.ranges(of: child)
                    // At once: in a damaged unit all functions may have the same list of ranges, of any length.
                    try reader.allowance.spend(ranges.count * MemoryLayout<Function>.stride)
                    for range in ranges {
                        let place = unsafe UInt(bitPattern: child.addr)
                        found.append(Function(low: range.lowerBound, high: range.upperBound, entry: place))
                    }
                    unsafe try collect(below: child, reader, depth: depth + 1, into: &found)
                case Int(DW_TAG_lexical_block), Int(DW_TAG_module), Int(DW_TAG_namespace), Int(DW_TAG_structure_type),
                    Int(DW_TAG_class_type),
                    Int(DW_TAG_enumeration_type), Int(DW_TAG_union_type), Int(DW_TAG_interface_type):
                    unsafe try collect(below: child, reader, depth: depth + 1, into: &found)
                default: break
                }
                return true
            }
        }
    }

    // Looking up

    extension DebugUnit {
        /// - Returns: The innermost call first. Without a function around the address, only its line.
        func calls(at address: UInt64, _ reader: DebugReader) throws(SymbolProblem) -> [DebugCall] {
            var location = line(at: address)
            guard let function = unsafe function(at: address, reader) else {
                return location.map { [DebugCall(name: nil, location: $0)] } ?? []
            }
            var calls: [DebugCall] = []
            let inlined = unsafe try inlined(at: address, in: function, reader)
            for index in unsafe inlined.indices.reversed() {
                let entry = unsafe inlined[index]
                calls.append(DebugCall(name: unsafe try name(of: entry, reader), location: location))
                location = unsafe callSite(of: entry, reader)
            }
            calls.append(DebugCall(name: unsafe try name(of: function, reader), location: location))
            return calls
        }

        /// The linker's name or the source name. An inlined lambda has no name for the linker in what GCC writes, and `operator()` says
        /// nothing: it is named by the function around it.
        private func name(of function: Dwarf_Die, _ reader: DebugReader) throws(SymbolProblem) -> String? {
            let (name, original) = unsafe try reader.functionName(function)
            guard name == "operator()", let around = unsafe try functionAround(lambda: original, reader) else {
                return name
            }
            return Demangler.lambdaMark + Demangler.shortName(around)
        }

        /// Nil if it is no lambda's function. Reads the entries from the unit's down to it.
        private func functionAround(lambda: Dwarf_Die, _ reader: DebugReader) throws(SymbolProblem) -> String? {
            let place = unsafe UInt(bitPattern: lambda.addr)
            var scope = unsafe entry
            var around: String?
            for _ in 0..<64 {
                // An entry stands before what is in it, and that before the next entry.
                var next: Dwarf_Die?
                unsafe try reader.children(of: scope) { child throws(SymbolProblem) in
                    guard unsafe UInt(bitPattern: child.addr) <= place else { return false }
                    unsafe next = unsafe child
                    return true
                }
                guard let inner = unsafe next else { return nil }
                if unsafe UInt(bitPattern: inner.addr) == place {
                    // Only a lambda's type has no name.
                    return unsafe try reader.text(Int(DW_AT_name), of: scope) == nil ? around : nil
                }
                if unsafe inner.tag == Int(DW_TAG_subprogram), let name = unsafe try reader.functionName(inner).name,
                    name != "operator()"
                {
                    around = name
                }
                unsafe scope = unsafe inner
            }
            return nil
        }

        private func function(at address: UInt64, _ reader: DebugReader) -> Dwarf_Die? {
            let functions = functions ?? []
            let next = functions.partitioningIndex { $0.low > address }
            guard next > 0, address < functions[next - 1].high else { return nil }
            var entry = unsafe Dwarf_Die()
            let place = unsafe UnsafeMutableRawPointer(bitPattern: functions[next - 1].entry)
            return unsafe dwarf_die_addr_die(reader.information.dwarf, place, &entry) != nil ? entry : nil
        }

        /// The calls that were inlined around the address, the outermost first.
        private func inlined(
            at address: UInt64,
            in function: Dwarf_Die,
            _ reader: DebugReader
        ) throws(SymbolProblem) -> [Dwarf_Die] {
            var found: [Dwarf_Die] = unsafe []
            var scope: Dwarf_Die? = unsafe function
            var depth = 0
            while let current = unsafe scope, depth < 256 {
                unsafe scope = nil
                var next: Dwarf_Die?
                unsafe try reader.children(of: current) { child throws(SymbolProblem) in
                    let tag = unsafe child.tag
                    guard tag == Int(DW_TAG_inlined_subroutine) || tag == Int(DW_TAG_lexical_block),
                        unsafe child.contains(address)
                    else { return true }
                    unsafe next = unsafe child
                    return false
                }
                if let next = unsafe next, unsafe next.tag == Int(DW_TAG_inlined_subroutine) {
                    unsafe found.append(next)
                }
                unsafe scope = unsafe next
                depth += 1
            }
            return unsafe found
        }

        private func line(at address: UInt64) -> SourcePosition? {
            var entry = unsafe entry
            guard let line = unsafe dwarf_getsrc_die(&entry, address) else { return nil }
            var (number, column): (Int32, Int32) = (0, 0)
            unsafe _ = dwarf_lineno(line, &number)
            unsafe _ = dwarf_linecol(line, &column)
            return unsafe SourcePosition(dwarf_linesrc(line, nil, nil), in: directory, Int(number), Int(column))
        }

        /// The side of an address on which a line is searched.
        enum Side { case before, behind }

        /// The addresses where lines of a function begin, on one side of an address, the nearest first. At most 128.
        func rows(
            _ side: Side,
            _ address: UInt64,
            in function: Range<UInt64>,
            _ reader: DebugReader
        ) throws(SymbolProblem) -> [UInt64] {
            var entry = unsafe entry
            var lines: OpaquePointer?
            var count = 0
            guard unsafe dwarf_getsrclines(&entry, &lines, &count) == 0, let lines = unsafe lines else { return [] }
            let start = unsafe firstLine(of: lines, count, above: address)
            var rows: [UInt64] = []
            var index = side == .before ? start - 1 : start
            while index >= 0, index < count, rows.count < 128, let row = unsafe Self.address(of: lines, index),
                function.contains(row)
            {
                try reader.allowance.step()
                rows.append(row)
                index += side == .before ? -1 : 1
            }
            return rows
        }

        /// libdw sorts the lines by address.
        private func firstLine(of lines: OpaquePointer, _ count: Int, above address: UInt64) -> Int {
            (0..<count).partitioningIndex { unsafe (Self.address(of: lines, $0) ?? 0) > address }
        }

        private static func address(of lines: OpaquePointer, _ index: Int) -> UInt64? {
            var address: Dwarf_Addr = 0
            guard let line = unsafe dwarf_onesrcline(lines, index), unsafe dwarf_lineaddr(line, &address) == 0 else {
                return nil
            }
            return address
        }

        private func callSite(of inlined: Dwarf_Die, _ reader: DebugReader) -> SourcePosition? {
            var entry = unsafe entry
            var files: OpaquePointer?
            var count = 0
            guard let file = unsafe reader.number(Int(DW_AT_call_file), of: inlined),
                unsafe dwarf_getsrcfiles(&entry, &files, &count) == 0, file >= 0, file < count
            else { return nil }
            let line = unsafe reader.number(Int(DW_AT_call_line), of: inlined) ?? 0
            let column = unsafe reader.number(Int(DW_AT_call_column), of: inlined) ?? 0
            return unsafe SourcePosition(dwarf_filesrc(files, file, nil, nil), in: directory, line, column)
        }
    }

    extension SourcePosition {
        /// Nil for compiler-generated code, which has line 0 or a file name that says so.
        fileprivate init?(_ file: UnsafePointer<CChar>?, in directory: String, _ line: Int, _ column: Int) {
            guard let file = unsafe file, line > 0 else { return nil }
            let path = unsafe String(boundedCString: file)
            guard !path.hasSuffix("<compiler-generated>") else { return nil }
            // Clang shortens the names of files below the directory in which it was started: with SwiftPM, of all C code of the package. Some
            // distributions remove the directory's name, so that both are relative.
            let isBelow = !path.hasPrefix("/") && directory.hasPrefix("/")
            self.init(file: isBelow ? "\(directory)/\(path)" : path, line: line, column: column > 0 ? column : nil)
        }
    }
#endif
