#if YAML
    import FoundationEssentials
    import StallReports
    import Synchronization
    import Yams

    /// The keys of a configuration file and the environment variables that the monitor does not know. Usually they are misspelt, and so
    /// have no effect. With a misspelt section no key of the file has any.
    ///
    /// The library that reads the values answers for the keys that it is asked for, and lists none.
    final class UnknownKeys: Sendable {
        private let file: String
        private let variables: [String]
        private let found = Mutex<Set<String>>([])

        init(file: String, environment: [String: String] = ProcessInfo.processInfo.environment) {
            self.file = file
            variables = environment.keys.filter { $0.hasPrefix(Self.prefix) }
                .map { String($0.dropFirst(Self.prefix.count)) }.sorted()
        }

        /// Reads the file. Returns what was not found before, first the file's keys in its order, each with the nearest known one: `tick (did
        /// you mean tickMilliseconds?)`. A file that cannot be read has none: whoever reads its values says so.
        func findNew() -> [String] {
            let unknown = unknownKeys + unknownVariables
            let new = found.withLock { found in unknown.filter { found.insert($0.name).inserted } }
            return new.map { VisibleText.of($0.name, limit: 100) + ($0.meant.map { " (did you mean \($0)?)" } ?? "") }
        }

        private var unknownKeys: [(name: String, meant: String?)] {
            guard let text = readFile(file, limit: 1 << 20), let root = try? Yams.compose(yaml: text) else { return [] }
            let known = ConfigurationOption.all.map(\.key)
            let keys = Self.keys(in: root, prefix: "").filter { $0.key.hasPrefix(Self.section + ".") }
                .map { (key: String($0.key.dropFirst(Self.section.count + 1)), hasValue: $0.hasValue) }
                // A group whose keys are all commented out has no value. With one (`repeated: false`) it is taken for a key.
                .filter { key, hasValue in !known.contains { $0 == key || !hasValue && $0.hasPrefix(key + ".") } }
                .map { (name: $0.key, meant: nearestName(to: $0.key, among: known)) }
            return misspeltSections(in: root) + keys
        }

        /// Only those whose name is near the monitor's: the file may have the server's own, too, such as `stall`.
        private func misspeltSections(in root: Node) -> [(name: String, meant: String?)] {
            let names = (root.mapping?.compactMap(\.key.string) ?? []).filter { $0 != Self.section }
            return names.filter { $0.count + 2 >= Self.section.count }.compactMap { name in
                nearestName(to: name, among: [Self.section]).map { (name, $0) }
            }
        }

        /// Only those whose name is near a known one: others use the prefix too, such as the command, and Kubernetes for a service that is
        /// called stall-monitor.
        private var unknownVariables: [(name: String, meant: String?)] {
            let known = ConfigurationOption.all.map { Self.variable(of: $0.key) }
            return variables.filter { !known.contains($0) }
                .compactMap { name in
                    nearestName(to: name, among: known).map { (Self.prefix + name, Self.prefix + $0) }
                }
        }

        /// The environment variable of a key, without the prefix: `LIMITS_REPORTS` of `limits.reports`.
        static func variable(of key: String) -> String {
            key.reduce(into: "") { name, letter in
                name += letter.isUppercase ? "_" : ""
                name += letter == "." ? "_" : letter.uppercased()
            }
        }

        private static let section = "stallMonitor"
        private static let prefix = "STALL_MONITOR_"

        /// All keys, their parts separated by dots.
        private static func keys(in node: Node, prefix: String) -> [(key: String, hasValue: Bool)] {
            guard let mapping = node.mapping else { return [(prefix, node.null == nil)] }
            return mapping.flatMap { name, value in
                keys(in: value, prefix: (prefix.isEmpty ? "" : prefix + ".") + (name.string ?? ""))
            }
        }
    }
#endif
