// Where functions begin, by the table that unwinding goes by: strip(1) leaves it.

extension ELFFile {
    /// The start of the function that an address lies in, by `.eh_frame_hdr` (Linux Standard Base, 10.6.2): a header, then pairs of a
    /// function's start and its description's, sorted, both counted from the section.
    ///
    /// A part that the compiler has split off counts as a function.
    ///
    /// - Parameter address: in the file's terms.
    /// - Returns: nil below the first function, and without such a table or in another encoding than all linkers write.
    func unwoundFunctionStart(around address: UInt64, _ allowance: Allowance) throws(SymbolProblem) -> UInt64? {
        guard let section = section(".eh_frame_hdr"),
            let header = try image.value(UInt64.self, at: section.range.lowerBound, allowance),
            // Version 1, then how the pointer, the number and the pairs are written: the last two as 4 bytes, unsigned and signed.
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
    /// `DW_EH_PE_udata4` for the number, `DW_EH_PE_datarel | DW_EH_PE_sdata4` for the pairs.
    static let layout: UInt64 = 0x3b03_0001
    static let countOffset = 8
    static let pairsOffset = 12
    static let pairSize = 8
}
