/// What the addresses of a process are resolved with: where its modules are, and their first pages. Of a process that has ended,
/// this is what was remembered.
struct ProcessImage: ~Copyable {
    let map: ModuleMap
    let memory: ProcessMemory
    private let remembered: RememberedModules

    init(of process: ProcessDirectory, remembered: RememberedModules = RememberedModules()) {
        let now = ModuleMap(of: process)
        map = now.mappings.isEmpty ? remembered.map : now
        memory = ProcessMemory(of: process)
        self.remembered = remembered
    }

    /// The module whose file starts at the mapping. Nil if it is none, or is neither there now nor remembered.
    func module(at mapping: ModuleMap.Mapping) -> ModuleImage? {
        ModuleImage(at: mapping.range.lowerBound, in: memory) ?? remembered.modules[mapping]
    }

    /// The whole of the kernel's page, which is in no file.
    func vdso(at mapping: ModuleMap.Mapping) -> [UInt8]? {
        let size = min(mapping.range.upperBound - mapping.range.lowerBound, 1 << 20)
        return memory.read(mapping.range.lowerBound, count: Int(size)) ?? remembered.vdso
    }
}

/// Modules of a process that may end before its addresses are resolved.
struct RememberedModules: Sendable {
    fileprivate(set) var map = ModuleMap(parsing: [])
    fileprivate(set) var modules: [ModuleMap.Mapping: ModuleImage] = [:]
    fileprivate var vdso: [UInt8]?

    /// Reads the process only if it has not seen the modules of all addresses yet.
    mutating func add(_ addresses: [UInt], of process: ProcessDirectory) {
        guard !addresses.allSatisfy(knows) else { return }
        let image = ProcessImage(of: process, remembered: self)
        map = image.map
        for mapping in addresses.compactMap(map.headerMapping) where modules[mapping] == nil {
            modules[mapping] = image.module(at: mapping)
            if mapping.isVDSO { vdso = image.vdso(at: mapping) }
        }
    }

    private func knows(_ address: UInt) -> Bool {
        guard map.contains(address) else { return false }
        return map.headerMapping(around: address).map { modules[$0] != nil } ?? true
    }
}
