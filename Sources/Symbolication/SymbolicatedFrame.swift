/// An address to be named.
public struct ResolvableAddress: Sendable, Hashable {
    /// Of this process. May point anywhere.
    public var address: UInt
    /// Whether the address is where a call returns to. It is then looked up one byte earlier: a call that never returns is its
    /// function's last instruction, and the next address belongs to another function.
    public var isReturnAddress: Bool

    /// Nothing is defaulted. Of a stack's frames, all but the innermost are return addresses.
    public init(address: UInt, isReturnAddress: Bool) {
        self.address = address
        self.isReturnAddress = isReturnAddress
    }
}

/// A file that is mapped into the process and runs there.
public struct LoadedModule: Sendable, Hashable {
    /// As the kernel names it, without its mark for a deleted file. `[vdso]` for the kernel's own.
    public var path: String
    /// The linker's build id in lower-case hexadecimal, or nil if the module carries none.
    public var buildID: String?
    /// What was added to the module's own addresses when it was loaded: `address - loadBase` is what its symbol table, `addr2line`
    /// and a debugger on the file understand. 0 for an executable that is not position-independent.
    public var loadBase: UInt

    /// Nothing is defaulted or checked.
    public init(path: String, buildID: String?, loadBase: UInt) {
        self.path = path
        self.buildID = buildID
        self.loadBase = loadBase
    }
}

/// What can be said of one address.
public struct SymbolicatedFrame: Sendable, Hashable {
    /// What a function is written in, as far as its symbol shows.
    public enum Language: String, Sendable, Hashable {
        case swift, cPlusPlus, c
    }

    /// As given.
    public var address: UInt
    /// Place in the modules that came with the frames. Nil for an address outside every module: generated code, or a damaged stack.
    public var moduleIndex: Int?
    /// Within the module, in its file's terms. Without a module, the address itself.
    public var moduleOffset: UInt
    /// As in the symbol table: mangled. Nil where the module's symbols do not cover the address, or are stripped.
    public var symbol: String?
    /// For people: demangled.
    public var function: String?
    /// How far into the function the address lies.
    public var functionOffset: UInt?
    /// The Swift module whose source the function stands in; for `(extension in X)` that is X. Nil for thunks, C and C++.
    public var swiftModule: String?
    /// Nil without a symbol.
    public var language: Language?

    /// In no module and without a name unless given; pass the address as `moduleOffset` then.
    public init(
        address: UInt,
        moduleIndex: Int? = nil,
        moduleOffset: UInt,
        symbol: String? = nil,
        function: String? = nil,
        functionOffset: UInt? = nil,
        swiftModule: String? = nil,
        language: Language? = nil
    ) {
        self.address = address
        self.moduleIndex = moduleIndex
        self.moduleOffset = moduleOffset
        self.symbol = symbol
        self.function = function
        self.functionOffset = functionOffset
        self.swiftModule = swiftModule
        self.language = language
    }
}
