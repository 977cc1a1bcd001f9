import Synchronization

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
