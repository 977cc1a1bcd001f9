/// What an address refers to, which determines how it is looked up.
public enum AddressKind: Sendable, Hashable {
    /// An instruction: looked up unchanged.
    case exact
    /// A return address. Looked up one byte earlier: a call that never returns is its function's last instruction, and the
    /// next address belongs to another function.
    case returnAddress
    /// Where an awaiting function resumes: the start of a function that the compiler has split off. The line is that of the
    /// `await`, as far as the code shows it: see ``Suspension``. Otherwise it is the first line after the resumption.
    case resumption
}

/// An address to be symbolicated.
public struct ResolvableAddress: Sendable, Hashable {
    /// An address of the process whose addresses the ``Symbolicator`` resolves. Any value is allowed.
    public var address: UInt
    /// How it is looked up.
    public var kind: AddressKind

    /// Creates an address to symbolicate. Any value is allowed.
    public init(address: UInt, kind: AddressKind) {
        (self.address, self.kind) = (address, kind)
    }

    /// For a stack's frames: all but the innermost are return addresses. Other addresses are looked up unchanged.
    public init(address: UInt, isReturnAddress: Bool) {
        self.init(address: address, kind: isReturnAddress ? .returnAddress : .exact)
    }
}

/// An address to be symbolicated that is known by its module: of another process, or from an old report.
public struct ModulePlace: Sendable, Hashable {
    /// The index in the modules passed with it.
    public var module: Int
    /// `address - loadBase`.
    public var offset: UInt
    /// How it is looked up.
    public var kind: AddressKind

    /// Creates a place in one of the modules that are passed with it.
    public init(module: Int, offset: UInt, kind: AddressKind) {
        (self.module, self.offset, self.kind) = (module, offset, kind)
    }

    /// An address that is not a return address is looked up unchanged.
    public init(module: Int, offset: UInt, isReturnAddress: Bool) {
        self.init(module: module, offset: offset, kind: isReturnAddress ? .returnAddress : .exact)
    }
}

/// The names of a number of addresses.
public struct Resolution: Sendable, Hashable {
    /// One per address, in their order.
    public var frames: [SymbolicatedFrame]
    /// The modules to which the frames refer, each once.
    public var modules: [LoadedModule]
    /// Why names or lines are missing: each once, at most a few per module.
    public var problems: [SymbolProblem]

    /// Without problems by default.
    public init(frames: [SymbolicatedFrame], modules: [LoadedModule], problems: [SymbolProblem] = []) {
        (self.frames, self.modules, self.problems) = (frames, modules, problems)
    }
}

/// A file that is mapped into the process and contains code.
public struct LoadedModule: Sendable, Hashable {
    /// The kernel's path, without its mark for a deleted file. `[vdso]` for the kernel's own.
    public var path: String
    /// The linker's build id in lower-case hexadecimal, or nil if the module has none.
    public var buildID: String?
    /// The offset added to the module's own addresses when it was loaded: `address - loadBase` is the address in its symbol
    /// table, for `addr2line` and for a debugger on the file. 0 for an executable that is not position-independent.
    public var loadBase: UInt
    /// Whether most of its functions have no name here: it was stripped, or its file is not available, and no symbol file was
    /// found. The few that a stripped module keeps for the loader do not count.
    public var lacksNames: Bool

    /// Creates a module. By default its names are available. The values are not checked.
    public init(path: String, buildID: String?, loadBase: UInt, lacksNames: Bool = false) {
        self.path = path
        self.buildID = buildID
        self.loadBase = loadBase
        self.lacksNames = lacksNames
    }
}

/// A position in the source.
public struct SourcePosition: Sendable, Hashable {
    /// The path that the compiler recorded, usually the full path on the build machine.
    public var file: String
    /// From 1.
    public var line: Int
    /// From 1, in bytes. Nil if the compiler recorded none.
    public var column: Int?

    /// Creates a position. The values are not checked.
    public init(file: String, line: Int, column: Int? = nil) {
        (self.file, self.line, self.column) = (file, line, column)
    }
}

/// A call that the compiler replaced by the called function's body.
public struct InlinedCall: Sendable, Hashable {
    /// Mangled, like the function's symbol. Nil if only the source name is known.
    public var symbol: String?
    /// Demangled, for display.
    public var function: String?
    /// The Swift module whose source contains the function.
    public var swiftModule: String?
    /// The location of the address in this function, or of the next inner call.
    public var location: SourcePosition?

    /// Everything is nil by default.
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

/// The information about one address.
public struct SymbolicatedFrame: Sendable, Hashable {
    /// The language of a function, as far as its symbol shows it.
    public enum Language: String, Sendable, Hashable {
        case swift, cPlusPlus, rust, c
    }

    /// The address as passed in.
    public var address: UInt
    /// The index in the modules returned with the frames. Nil for an address outside every module: generated code, or a damaged
    /// stack.
    public var moduleIndex: Int?
    /// The address in the module's file. Without a module, the address itself.
    public var moduleOffset: UInt
    /// As in the symbol table: mangled. Nil if the module's symbols do not cover the address, or are stripped.
    public var symbol: String?
    /// Demangled, for display.
    public var function: String?
    /// The offset of the address in the function. Without a symbol, according to the module's unwind table.
    public var functionOffset: UInt?
    /// The Swift module whose source contains the function; for `(extension in X)` that is X. Nil for thunks, C and C++.
    public var swiftModule: String?
    /// Nil without a symbol.
    public var language: Language?
    /// The location of the address in the function, or of the outermost call inlined there. For a return address, the location
    /// of the call; for a resumption, that of the `await`.
    public var location: SourcePosition?
    /// The calls inlined into the function around the address, the innermost first.
    public var inlined: [InlinedCall]

    /// Without a module and a name by default; pass the address as `moduleOffset` then.
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
