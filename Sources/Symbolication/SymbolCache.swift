/// Symbols of the modules used so far, within a size limit.
struct SymbolCache {
    /// Identifies the module for which symbols were read. The first page, read from memory on each use, distinguishes a module
    /// from another one loaded in its place, even under the same name. Modules without a build id may have equal first pages;
    /// for them the file's stamp decides.
    private struct Key: Hashable {
        var path: String
        var firstPage: [UInt8]?
        var buildID: String?
        var stamp: FileStamp?
    }

    let search: SymbolSearch
    private let limit: Int
    private let process: ProcessDirectory
    private var modules: [Key: (symbols: ModuleSymbols, lastUse: UInt64)] = [:]
    private var uses: UInt64 = 0
    /// The build ids of all modules used, whether their names were needed or not.
    private var builds: Set<String> = []

    init(search: SymbolSearch, limit: Int, process: ProcessDirectory = .own) {
        (self.search, self.limit, self.process) = (search, limit, process)
    }

    /// - Returns: A module's symbols; nil if its file is missing or replaced. That is not cached: the file may appear later.
    mutating func symbols(
        of image: ModuleImage,
        at mapping: ModuleMap.Mapping,
        _ owner: borrowing ProcessImage,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) -> ModuleSymbols? {
        if mapping.isVDSO { return vdso(image, mapping, owner, allowance) }
        var candidates = mapping.candidatePaths(in: process)
        var stamp: FileStamp?
        if image.buildID == nil {
            // The path is not enough: only the inode shows that this is the file that was loaded.
            candidates.removeAll { FileStamp($0)?.inode != mapping.inode }
            stamp = candidates.first.flatMap(FileStamp.init)
        }
        let sought = SoughtModule(
            path: mapping.plainPath,
            buildID: image.buildID,
            candidates: candidates,
            firstPage: image.firstPage
        )
        return symbols(of: sought, stamp: stamp, allowance, &problems)
    }

    /// - Returns: Symbols of a module that is known by its path and build id.
    mutating func symbols(
        of module: LoadedModule,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) -> ModuleSymbols? {
        guard module.path.hasPrefix("/"), module.buildID != nil else {
            if module.path.hasPrefix("/") { problems.append(SymbolProblem(.noBuildID, path: module.path)) }
            return nil
        }
        let sought = SoughtModule(path: module.path, buildID: module.buildID, candidates: [module.path])
        return symbols(of: sought, stamp: nil, allowance, &problems)
    }

    private mutating func symbols(
        of sought: SoughtModule,
        stamp: FileStamp?,
        _ allowance: Allowance,
        _ problems: inout [SymbolProblem]
    ) -> ModuleSymbols? {
        let key = Key(path: sought.path, firstPage: sought.firstPage, buildID: sought.buildID, stamp: stamp)
        do throws(SymbolProblem) {
            let symbols = try reachable(modules[key]?.symbols, sought, allowance)
            problems += symbols.problems
            keep(symbols, key)
            return symbols
        } catch {
            problems.append(error.at(sought.path))
            return nil
        }
    }

    /// The known symbols. If there are none, or their files are out of reach, the files are searched: a process's program is read through the
    /// process's directory while it runs, and is only to be found by its path later. If that gives less, what is known stays.
    private func reachable(
        _ known: ModuleSymbols?,
        _ sought: SoughtModule,
        _ allowance: Allowance
    ) throws(SymbolProblem) -> ModuleSymbols {
        guard let known else { return try ModuleSymbols(sought, search, allowance) }
        guard !known.isReachable, let found = try? ModuleSymbols(sought, search, allowance), found.canReplace(known)
        else { return known }
        return found
    }

    mutating func note(_ modules: [LoadedModule]) {
        builds.formUnion(modules.compactMap(\.buildID))
    }

    func unusedFiles(_ allowance: Allowance) -> [SymbolProblem] {
        search.directories.filter { FileStamp($0)?.isRegular == true }.compactMap { path in
            do throws(SymbolProblem) {
                let id = try ELFFile(path: path, allowance).buildID
                return id.map(builds.contains) == true ? nil : SymbolProblem(.otherBuild, path: path)
            } catch {
                return error
            }
        }
    }

    private mutating func vdso(
        _ image: ModuleImage,
        _ mapping: ModuleMap.Mapping,
        _ owner: borrowing ProcessImage,
        _ allowance: Allowance
    ) -> ModuleSymbols? {
        let key = Key(path: mapping.path, firstPage: image.firstPage)
        if let known = modules[key] { return known.symbols }
        guard let bytes = owner.vdso(at: mapping), let file = FileImage(bytes: bytes, name: mapping.path),
            let symbols = ModuleSymbols(image: file, allowance)
        else { return nil }
        keep(symbols, key)
        return symbols
    }

    private mutating func keep(_ symbols: ModuleSymbols, _ key: Key) {
        guard symbols.isWorthKeeping else { return }
        uses += 1
        modules[key] = (symbols, uses)
    }

    /// Closes the files, and drops the least recently used symbols until the rest is within the limit.
    mutating func trim() {
        var total = 0
        for (symbols, _) in modules.values {
            symbols.release()
            total += symbols.byteCount
        }
        while total > limit, let oldest = modules.min(by: { $0.value.lastUse < $1.value.lastUse }) {
            modules[oldest.key] = nil
            total -= oldest.value.symbols.byteCount
        }
    }
}
