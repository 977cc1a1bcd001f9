import Synchronization

/// Names for addresses of a process, by default this one: module, build id, function.
///
/// Reads `/proc/PID/maps`, memory through `/proc/PID/mem`, and the modules' files. Never takes the loader's lock, so it may be used
/// while a stalled thread holds it. Not for the hot path: it allocates, and a module's first address costs reading its symbol table.
/// Any thread may call; calls are serialised.
public final class Symbolicator: Sendable {
    private let process: ProcessDirectory
    private let cache: Mutex<SymbolCache>

    /// For the calling process. Reads nothing yet.
    public convenience init() {
        self.init(cacheLimit: 64 << 20)
    }

    /// For any process whose memory may be read; of others nothing gets a name. Finds its files also if it runs in a container.
    /// Reads nothing yet.
    public convenience init(processID: Int32) {
        self.init(cacheLimit: 64 << 20, process: ProcessDirectory(processID: processID))
    }

    /// - Parameter cacheLimit: bytes that the symbol indexes may take up together; those used longest ago go first. What one call
    ///   needs stays until its end.
    init(cacheLimit: Int, process: ProcessDirectory = .own) {
        self.process = process
        cache = Mutex(SymbolCache(limit: cacheLimit, process: process))
    }

    /// Names what can be named, as things are loaded now: a module that is gone leaves its frames without one.
    ///
    /// - Returns: one frame per address, in their order, and the modules they refer to, each once.
    public func resolve(_ addresses: [ResolvableAddress]) -> (frames: [SymbolicatedFrame], modules: [LoadedModule]) {
        guard let memory = ProcessMemory(of: process) else {
            return (addresses.map { SymbolicatedFrame(address: $0.address, moduleOffset: $0.address) }, [])
        }
        return cache.withLock { cache in
            var resolution = Resolution(map: ModuleMap(of: process))
            for address in addresses {
                resolution.add(address, memory, &cache)
            }
            cache.trim()
            return (resolution.frames, resolution.modules)
        }
    }
}

/// One call's work.
private struct Resolution {
    let map: ModuleMap
    var frames: [SymbolicatedFrame] = []
    var modules: [LoadedModule] = []
    /// What the header mappings met so far turned out to be.
    var known: [ModuleMap.Mapping: (index: Int, image: ModuleImage, symbols: SymbolIndex)] = [:]

    init(map: ModuleMap) {
        self.map = map
    }

    mutating func add(_ address: ResolvableAddress, _ memory: borrowing ProcessMemory, _ cache: inout SymbolCache) {
        let place = address.isReturnAddress ? address.address &- 1 : address.address
        guard let mapping = map.headerMapping(around: place),
            let module = module(at: mapping, memory, &cache), place < module.image.end
        else {
            frames.append(SymbolicatedFrame(address: address.address, moduleOffset: address.address))
            return
        }
        let base = module.image.loadBase
        let offset = address.address &- base
        var frame = SymbolicatedFrame(address: address.address, moduleIndex: module.index, moduleOffset: offset)
        if let match = module.symbols.match(UInt64(place &- base)) {
            frame.setName(match)
        }
        frames.append(frame)
    }

    private mutating func module(
        at mapping: ModuleMap.Mapping,
        _ memory: borrowing ProcessMemory,
        _ cache: inout SymbolCache
    ) -> (index: Int, image: ModuleImage, symbols: SymbolIndex)? {
        if let module = known[mapping] { return module }
        guard let image = ModuleImage(at: mapping.range.lowerBound, in: memory) else { return nil }
        let symbols = cache.symbols(of: image, at: mapping, memory)
        modules.append(LoadedModule(path: mapping.plainPath, buildID: image.buildID, loadBase: image.loadBase))
        let module = (index: modules.count - 1, image: image, symbols: symbols)
        known[mapping] = module
        return module
    }
}

extension SymbolicatedFrame {
    fileprivate mutating func setName(_ match: SymbolIndex.Match) {
        symbol = match.name
        functionOffset = moduleOffset &- UInt(match.start)
        language = Demangler.language(of: match.name)
        let demangled = Demangler.demangle(match.name)
        function = demangled
        swiftModule = language == .swift ? Demangler.swiftModule(ofDemangled: demangled) : nil
    }
}
