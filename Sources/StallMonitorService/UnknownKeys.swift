#if YAML
    import StallReports
    import Synchronization
    import Yams

    /// The keys of a configuration file that the monitor does not know. Usually they are misspelt, and so have no effect.
    ///
    /// The library that reads the file answers for the keys that it is asked for, and lists none.
    final class UnknownKeys: Sendable {
        private let file: String
        private let found = Mutex<Set<String>>([])

        init(file: String) { self.file = file }

        /// Reads the file. Returns the keys that it did not have before, in its order, each with the nearest known one: `tick (did you mean
        /// tickMilliseconds?)`. A file that cannot be read has none: whoever reads its values says so.
        func findNew() -> [String] {
            guard let text = readFile(file, limit: 1 << 20), let root = try? Yams.compose(yaml: text) else { return [] }
            let known = ConfigurationOption.all.map(\.key)
            let unknown = Self.keys(in: root, prefix: "").filter { $0.hasPrefix(Self.section) }
                .map { String($0.dropFirst(Self.section.count)) }
                // The name of a group whose keys are all commented out.
                .filter { key in !known.contains { $0 == key || $0.hasPrefix(key + ".") } }
            let new = found.withLock { found in unknown.filter { found.insert($0).inserted } }
            return new.map { key in
                VisibleText.of(key, limit: 100)
                    + (nearestName(to: key, among: known).map { " (did you mean \($0)?)" } ?? "")
            }
        }

        private static let section = "stallMonitor."

        /// The keys of all values, their parts separated by dots.
        private static func keys(in node: Node, prefix: String) -> [String] {
            guard let mapping = node.mapping else { return [prefix] }
            return mapping.flatMap { name, value in
                keys(in: value, prefix: (prefix.isEmpty ? "" : prefix + ".") + (name.string ?? ""))
            }
        }
    }
#endif
