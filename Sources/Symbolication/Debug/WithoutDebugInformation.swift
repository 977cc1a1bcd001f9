#if !Symbols
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
