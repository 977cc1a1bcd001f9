import Glibc

/// What changes when a file is replaced or written to.
struct FileStamp: Hashable, Sendable {
    var device: UInt64
    var inode: UInt64
    var size: Int64
    var modifiedNanoseconds: Int64

    /// Nil if there is no such file, or it may not be looked at.
    init?(_ path: String) {
        var status = stat()
        guard unsafe stat(path, &status) == 0 else { return nil }
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
        size = Int64(status.st_size)
        modifiedNanoseconds = Int64(status.st_mtim.tv_sec) * 1_000_000_000 + Int64(status.st_mtim.tv_nsec)
    }
}

/// Symbol indexes of the modules met so far, within a limit.
struct SymbolCache: Sendable {
    /// What a symbol index was made for. The first page, taken from memory on each use, tells a module from another one that was
    /// loaded in its place, be it under the same name; for modules without a build id, which may be alike there, the file's stamp does.
    private struct Key: Hashable {
        var path: String
        var firstPage: [UInt8]
        var buildID: String?
        var stamp: FileStamp?
    }

    private let limit: Int
    private let process: ProcessDirectory
    private var indexes: [Key: (index: SymbolIndex, lastUse: UInt64)] = [:]
    private var uses: UInt64 = 0

    init(limit: Int, process: ProcessDirectory) {
        self.limit = limit
        self.process = process
    }

    /// - Returns: the module's functions; none if its file is gone, replaced or stripped. That is not remembered: the file may come.
    mutating func symbols(
        of image: ModuleImage,
        at mapping: ModuleMap.Mapping,
        _ memory: borrowing ProcessMemory
    ) -> SymbolIndex {
        let stamp =
            image.buildID == nil ? mapping.candidatePaths(in: process).lazy.compactMap(FileStamp.init).first : nil
        let key = Key(path: mapping.path, firstPage: image.firstPage, buildID: image.buildID, stamp: stamp)
        guard let index = indexes[key]?.index ?? read(image, mapping, memory) else { return SymbolIndex() }
        uses += 1
        indexes[key] = (index, uses)
        return index
    }

    private func read(
        _ image: ModuleImage,
        _ mapping: ModuleMap.Mapping,
        _ memory: borrowing ProcessMemory
    ) -> SymbolIndex? {
        if mapping.isVDSO {
            return memory.read(mapping.range.lowerBound, count: mapping.range.count).flatMap { SymbolIndex(image: $0) }
        }
        for path in mapping.candidatePaths(in: process) {
            // Without a build id only the inode says that this is the file that was loaded.
            if image.buildID == nil, FileStamp(path)?.inode != mapping.inode { continue }
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
