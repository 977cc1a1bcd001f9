/// What an address stands for, and so how it is looked up.
public enum AddressKind: Sendable, Hashable {
    /// An instruction: looked up as it is.
    case exact
    /// Where a call returns to. Looked up one byte earlier: a call that never returns is its function's last instruction, and the
    /// next address belongs to another function.
    case returnAddress
    /// Where an awaiting function goes on: the start of a function that the compiler has split off. The line is that of the `await`,
    /// as far as the code tells: see ``Suspension``. Elsewhere it is the first one that goes on.
    case resumption
}

/// An address to be named.
public struct ResolvableAddress: Sendable, Hashable {
    /// Of this process. May point anywhere.
    public var address: UInt
    /// How it is looked up.
    public var kind: AddressKind

    /// Nothing is defaulted.
    public init(address: UInt, kind: AddressKind) {
        (self.address, self.kind) = (address, kind)
    }

    /// Of a stack's frames, all but the innermost are return addresses. The others are looked up as they are.
    public init(address: UInt, isReturnAddress: Bool) {
        self.init(address: address, kind: isReturnAddress ? .returnAddress : .exact)
    }
}

/// An address to be named that is known by its module: of another process, or of an old report.
public struct ModulePlace: Sendable, Hashable {
    /// Index into the modules that come with it.
    public var module: Int
    /// `address - loadBase`.
    public var offset: UInt
    /// How it is looked up.
    public var kind: AddressKind

    /// Nothing is defaulted.
    public init(module: Int, offset: UInt, kind: AddressKind) {
        (self.module, self.offset, self.kind) = (module, offset, kind)
    }

    /// What is no return address is looked up as it is.
    public init(module: Int, offset: UInt, isReturnAddress: Bool) {
        self.init(module: module, offset: offset, kind: isReturnAddress ? .returnAddress : .exact)
    }
}

/// Names for a number of addresses.
public struct Resolution: Sendable, Hashable {
    /// One per address, in their order.
    public var frames: [SymbolicatedFrame]
    /// What the frames refer to, each once.
    public var modules: [LoadedModule]
    /// Why names or lines are missing: each once, at most a few a module.
    public var problems: [SymbolProblem]

    /// Without problems unless given.
    public init(frames: [SymbolicatedFrame], modules: [LoadedModule], problems: [SymbolProblem] = []) {
        (self.frames, self.modules, self.problems) = (frames, modules, problems)
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
    /// Whether most of its functions have no name here: it was stripped, or its file cannot be had, and no symbol file was found. The few
    /// that a stripped module keeps for the loader do not count.
    public var lacksNames: Bool

    /// With names unless said otherwise. Nothing is checked.
    public init(path: String, buildID: String?, loadBase: UInt, lacksNames: Bool = false) {
        self.path = path
        self.buildID = buildID
        self.loadBase = loadBase
        self.lacksNames = lacksNames
    }
}

/// A place in the source.
public struct SourcePosition: Sendable, Hashable {
    /// As the compiler wrote it down, usually with its whole path on the machine that built it.
    public var file: String
    /// From 1.
    public var line: Int
    /// From 1, in bytes. Nil if the compiler gave none.
    public var column: Int?

    /// Nothing is checked.
    public init(file: String, line: Int, column: Int? = nil) {
        (self.file, self.line, self.column) = (file, line, column)
    }
}

/// A call that the compiler replaced by the called function's body.
public struct InlinedCall: Sendable, Hashable {
    /// Mangled, as the function's symbol would be. Nil if only the source's name is known.
    public var symbol: String?
    /// For people: demangled.
    public var function: String?
    /// The Swift module whose source the function stands in.
    public var swiftModule: String?
    /// Where in this function the address lies, or the next call inwards.
    public var location: SourcePosition?

    /// Nothing is known unless given.
    public init(
        symbol: String? = nil,
        function: String? = nil,
        swiftModule: String? = nil,
        location: SourcePosition? = nil
    ) {
        (self.symbol, self.function) = (symbol, function)
        (self.swiftModule, self.location) = (swiftModule, location)
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
    /// How far into the function the address lies. Without a symbol, by the module's unwind table.
    public var functionOffset: UInt?
    /// The Swift module whose source the function stands in; for `(extension in X)` that is X. Nil for thunks, C and C++.
    public var swiftModule: String?
    /// Nil without a symbol.
    public var language: Language?
    /// Where in the function the address lies, or the outermost of the calls inlined there. For a return address, the place of the call;
    /// for a resumption, of the `await`.
    public var location: SourcePosition?
    /// The calls inlined into the function around the address, the innermost first.
    public var inlined: [InlinedCall]

    /// In no module and without a name unless given; pass the address as `moduleOffset` then.
    public init(
        address: UInt,
        moduleIndex: Int? = nil,
        moduleOffset: UInt,
        symbol: String? = nil,
        function: String? = nil,
        functionOffset: UInt? = nil,
        swiftModule: String? = nil,
        language: Language? = nil,
        location: SourcePosition? = nil,
        inlined: [InlinedCall] = []
    ) {
        self.address = address
        self.moduleIndex = moduleIndex
        self.moduleOffset = moduleOffset
        self.symbol = symbol
        self.function = function
        self.functionOffset = functionOffset
        self.swiftModule = swiftModule
        self.language = language
        self.location = location
        self.inlined = inlined
    }
}
