/// Symbol indexes of the modules met so far, within a limit.
struct SymbolCache: Sendable {
    /// What a symbol index was made for. The first page, taken from memory on each use, tells a module from another one that was
    /// loaded in its place, be it under the same name.
    private struct Key: Hashable {
        var path: String
        var firstPage: [UInt8]
        var buildID: String?
    }

    private let limit: Int
    private var indexes: [Key: (index: SymbolIndex, lastUse: UInt64)] = [:]
    private var uses: UInt64 = 0

    init(limit: Int) {
        self.limit = limit
    }

    /// - Returns: the module's functions; none if its file is gone, replaced or stripped. That is not remembered: the file may come.
    mutating func symbols(
        of image: ModuleImage,
        at mapping: ModuleMap.Mapping,
        _ memory: borrowing OwnMemory
    ) -> SymbolIndex {
        let key = Key(path: mapping.path, firstPage: image.firstPage, buildID: image.buildID)
        guard let index = indexes[key]?.index ?? read(image, mapping, memory) else { return SymbolIndex() }
        uses += 1
        indexes[key] = (index, uses)
        return index
    }

    private func read(
        _ image: ModuleImage,
        _ mapping: ModuleMap.Mapping,
        _ memory: borrowing OwnMemory
    ) -> SymbolIndex? {
        if mapping.isVDSO {
            return memory.read(mapping.range.lowerBound, count: mapping.range.count).flatMap { SymbolIndex(image: $0) }
        }
        for path in mapping.candidatePaths {
            if let index = SymbolIndex(file: path, startingWith: image.firstPage) { return index }
        }
        return nil
    }

    /// Drops what was used longest ago until the rest is within the limit.
    mutating func trim() {
        var total = indexes.values.reduce(0) { $0 + $1.index.byteCount }
        while total > limit, let oldest = indexes.min(by: { $0.value.lastUse < $1.value.lastUse }) {
            indexes[oldest.key] = nil
            total -= oldest.value.index.byteCount
        }
    }
}
