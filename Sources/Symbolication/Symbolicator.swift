import Synchronization

/// Symbolicates addresses, by default of this process: module, build id, function, line, inlined calls.
///
/// Reads `/proc/PID/maps`, memory through `/proc/PID/mem`, the modules' files and their symbol files. Never takes the loader's
/// lock, so it may be used while a stalled thread holds it. Not for the hot path: it allocates, and the first address of a
/// module requires reading its symbol table and an index of its debug information. Any thread may call; calls are serialised.
public final class Symbolicator: Sendable {
    let process: ProcessDirectory
    let cache: Mutex<SymbolCache>
    /// For another process: functions generated at run time.
    private let perfMap = Mutex(PerfMapCache())
    private let remembered = Mutex(RememberedModules())

    /// Reads nothing yet.
    public convenience init(search: SymbolSearch = SymbolSearch()) {
        self.init(search: search, cacheLimit: 64 << 20)
    }

    /// - Parameter cacheLimit: The bytes that all symbols may use between calls; the least recently used are dropped first.
    public init(search: SymbolSearch = SymbolSearch(), cacheLimit: Int) {
        process = .own
        cache = Mutex(SymbolCache(search: search, limit: cacheLimit))
    }

    /// For any process whose memory may be read; otherwise nothing gets a name. Finds its files also if it runs in a container,
    /// and the names of functions generated at run time in its `/tmp/perf-PID.map`. Reads nothing yet, but holds the process's
    /// directory in `/proc` open: a later process with the same number gives no names.
    public convenience init(processID: Int32, search: SymbolSearch = SymbolSearch()) {
        self.init(of: ProcessDirectory(processID: processID), search)
    }

    /// For a process that runs another program now. Reads nothing yet.
    package convenience init(ofSameProcessAs former: Symbolicator) {
        self.init(of: former.process, former.cache.withLock(\.search))
    }

    private init(of process: ProcessDirectory, _ search: SymbolSearch) {
        self.process = process
        cache = Mutex(SymbolCache(search: search, limit: 64 << 20, process: process))
    }

    /// Whether the process writes the names of functions that it generates at run time. Reads its file.
    package var knowsGeneratedCode: Bool { perfMap.withLock { $0.map(of: process) } != nil }

    /// Remembers in which modules the addresses are, so that ``resolve(_:budget:)`` still finds their names when the process has
    /// ended. Call it for another process as soon as a stack is taken. Takes about 0.1 ms, and less if the modules are known.
    package func remember(_ addresses: [UInt]) {
        remembered.withLock { $0.add(addresses, of: process) }
    }

    /// The process runs another program now, whose modules may be at the same addresses: from now on only what is remembered of this one
    /// counts.
    package func noteReplaced() {
        remembered.withLock { $0.isFinal = true }
        perfMap.withLock { $0.isFinal = true }
    }

    /// Symbolicates addresses of this process with the modules loaded now: frames in a module that was unloaded get no name.
    ///
    /// - Parameter budget: Frames beyond it get module and offset only, and a problem reports that.
    public func resolve(_ addresses: [ResolvableAddress], budget: SymbolicationBudget = .server) -> Resolution {
        let image = ProcessImage(of: process, remembered: remembered.withLock(\.self))
        return cache.withLock { cache in
            var work = OwnResolution(allowance: Allowance(budget))
            for address in addresses { work.add(address, image, &cache) }
            if !process.isOwn { name(&work.frames, addresses, &work.problems) }
            cache.trim()
            let problems = work.problems.map(process.readable).unique
            return Resolution(frames: work.frames, modules: work.modules, problems: problems)
        }
    }

    /// Names code that was generated at run time, from the file that its generator writes for perf: ``PerfMap``.
    private func name(
        _ frames: inout [SymbolicatedFrame],
        _ addresses: [ResolvableAddress],
        _ problems: inout [SymbolProblem]
    ) {
        guard frames.contains(where: { $0.moduleIndex == nil }),
            let map = perfMap.withLock({ $0.map(of: process) })
        else { return }
        for (index, address) in addresses.enumerated() where frames[index].moduleIndex == nil {
            guard let (name, start) = map.function(at: address.place) else {
                if let size = map.sizeIfCut { problems.append(.cutMap(of: size)) }
                continue
            }
            (frames[index].symbol, frames[index].function) = (name, name)
            frames[index].location = GeneratedName(name)?.location
            frames[index].functionOffset = address.address &- start
        }
    }

    /// Symbolicates addresses of any process or report by their modules' build ids. A module's own file is used if it is still
    /// of that build.
    ///
    /// - Parameter modules: The modules to which the places refer. A place with an index out of range gets no name.
    public func resolve(
        _ places: [ModulePlace],
        in modules: [LoadedModule],
        budget: SymbolicationBudget
    ) -> Resolution {
        cache.withLock { cache in
            var modules = modules
            cache.note(modules)
            let allowance = Allowance(budget)
            var problems: [SymbolProblem] = []
            var symbols: [Int: ModuleSymbols?] = [:]
            let frames = places.map { place in
                guard modules.indices.contains(place.module) else {
                    return SymbolicatedFrame(address: place.offset, moduleOffset: place.offset)
                }
                let module = modules[place.module]
                var frame = SymbolicatedFrame(
                    address: place.offset &+ module.loadBase,
                    moduleIndex: place.module,
                    moduleOffset: place.offset
                )
                let known = symbols[place.module] ?? cache.symbols(of: module, allowance, &problems)
                symbols[place.module] = known
                modules[place.module].lacksNames = known?.index?.isFull != true
                known?.name(&frame, place.kind, allowance, &problems)
                return frame
            }
            cache.trim()
            return Resolution(frames: frames, modules: modules, problems: problems.unique)
        }
    }

    /// The given symbol files whose build belongs to no module used so far.
    public func unusedFiles(budget: SymbolicationBudget = .tool) -> [SymbolProblem] {
        cache.withLock { $0.unusedFiles(Allowance(budget)) }
    }
}

extension AddressKind {
    /// The place at which an address is looked up.
    fileprivate func place(of address: UInt) -> UInt { self == .returnAddress ? address &- 1 : address }
}

extension ResolvableAddress {
    fileprivate var place: UInt { kind.place(of: address) }
}

/// One call's work on addresses of this process.
private struct OwnResolution {
    let allowance: Allowance
    var frames: [SymbolicatedFrame] = []
    var modules: [LoadedModule] = []
    var problems: [SymbolProblem] = []
    /// The modules of the header mappings found so far.
    private var known: [ModuleMap.Mapping: Module] = [:]

    private struct Module {
        var index: Int
        var image: ModuleImage
        var symbols: ModuleSymbols?
    }

    init(allowance: Allowance) { self.allowance = allowance }

    mutating func add(_ address: ResolvableAddress, _ process: borrowing ProcessImage, _ cache: inout SymbolCache) {
        let place = address.place
        guard let mapping = process.map.headerMapping(around: place),
            let module = module(at: mapping, process, &cache), place < module.image.end
        else {
            frames.append(SymbolicatedFrame(address: address.address, moduleOffset: address.address))
            return
        }
        let offset = address.address &- module.image.loadBase
        var frame = SymbolicatedFrame(address: address.address, moduleIndex: module.index, moduleOffset: offset)
        module.symbols?.name(&frame, address.kind, allowance, &problems)
        frames.append(frame)
    }

    private mutating func module(
        at mapping: ModuleMap.Mapping,
        _ process: borrowing ProcessImage,
        _ cache: inout SymbolCache
    ) -> Module? {
        if let module = known[mapping] { return module }
        guard let image = process.module(at: mapping) else { return nil }
        let symbols = cache.symbols(of: image, at: mapping, process, allowance, &problems)
        modules.append(
            LoadedModule(
                path: mapping.plainPath,
                buildID: image.buildID,
                loadBase: image.loadBase,
                lacksNames: symbols?.index?.isFull != true
            )
        )
        let module = Module(index: modules.count - 1, image: image, symbols: symbols)
        known[mapping] = module
        return module
    }
}

extension ModuleSymbols {
    fileprivate func name(
        _ frame: inout SymbolicatedFrame,
        _ kind: AddressKind,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) {
        let place = UInt64(kind.place(of: frame.moduleOffset))
        let answer =
            kind == .resumption
            ? answer(resumedAt: place, allowance, &problems) : answer(place, allowance, &problems)
        let start = answer.symbol?.start ?? (try? module?.unwoundFunctionStart(around: place, allowance))
        frame.functionOffset = start.map { frame.moduleOffset &- UInt($0) }
        frame.symbol = answer.function?.symbol
        frame.function = answer.function?.function
        frame.swiftModule = answer.function?.swiftModule
        frame.language = answer.function?.language
        frame.location = answer.function?.location
        frame.inlined = answer.calls.map {
            InlinedCall(symbol: $0.symbol, function: $0.function, swiftModule: $0.swiftModule, location: $0.location)
        }
    }
}

extension [SymbolProblem] {
    /// Each problem once, in order.
    fileprivate var unique: [SymbolProblem] {
        var seen: Set<SymbolProblem> = []
        return filter { seen.insert($0).inserted }
    }
}

/// Where a function of a running process is.
package struct FunctionPlace: Hashable, Sendable {
    /// Its code.
    package var range: Range<UInt>
    /// The whole module that contains it, with its data.
    package var module: Range<UInt>

    package init(range: Range<UInt>, module: Range<UInt>) { (self.range, self.module) = (range, module) }
}

extension Symbolicator {
    /// Finds functions of the process by their names. Reads the module's symbol table once more each time: not for the hot path. Any thread.
    ///
    /// - Parameters:
    ///   - names: as in the symbol table.
    ///   - prefix: how the file names of the modules begin in which to look. Nil: looks in the program's own file.
    /// - Returns: those that were found, by their names.
    package func functions(_ names: Set<String>, inModule prefix: String?) -> [String: FunctionPlace] {
        let image = ProcessImage(of: process)
        let headers = image.map.headers { path in
            guard let prefix else { return path == process.executable }
            return path.split(separator: "/").last?.hasPrefix(prefix) == true
        }
        return cache.withLock { cache in
            defer { cache.trim() }
            for mapping in headers.prefix(8) {
                var problems: [SymbolProblem] = []
                let allowance = Allowance(.server)
                guard let module = image.module(at: mapping),
                    let symbols = cache.symbols(of: module, at: mapping, image, allowance, &problems),
                    let found = try? symbols.index?.ranges(of: names, allowance), !found.isEmpty
                else { continue }
                let whole = module.loadBase..<max(module.loadBase, module.end)
                return found.compactMapValues { range in
                    let start = module.loadBase &+ UInt(truncatingIfNeeded: range.lowerBound)
                    let end = module.loadBase &+ UInt(truncatingIfNeeded: range.upperBound)
                    guard start < end, whole.contains(start) else { return nil }
                    return FunctionPlace(range: start..<end, module: whole)
                }
            }
            return [:]
        }
    }
}

extension ModuleMap {
    /// The mappings with the starts of the files whose plain paths are chosen.
    fileprivate func headers(_ isChosen: (String) -> Bool) -> [Mapping] {
        mappings.filter { $0.fileOffset == 0 && $0.isModule && isChosen($0.plainPath) }
    }
}
