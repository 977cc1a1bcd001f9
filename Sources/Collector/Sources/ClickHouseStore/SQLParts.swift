import StallStore

/// A condition of a WHERE clause.
struct SQLCondition {
    var sql: String
    init(_ sql: String) { self.sql = sql }
    static func && (left: SQLCondition, right: SQLCondition) -> SQLCondition {
        SQLCondition("\(left.sql) AND \(right.sql)")
    }

    /// A condition for each column that has values: the column is one of them.
    static func among(_ choices: [(String, [String])]) -> SQLCondition {
        SQLCondition(
            (["1"] + choices.filter { !$0.1.isEmpty }.map { "\($0.0) IN \(SQLLiteral.list($0.1))" }).joined(
                separator: " AND "
            )
        )
    }

    /// Selects runs: also those that watch one of the services from outside. The releases of what they watch are not known.
    static func runs(_ query: StallQuery) -> SQLCondition {
        guard !query.services.isEmpty, query.releases.isEmpty else { return .among(query.runChoices) }
        let (list, array) = (SQLLiteral.list(query.services), SQLLiteral.array(query.services))
        return .among([("host", query.hosts)])
            && SQLCondition("(service IN \(list) OR arrayExists(x -> has(\(array), x), watched_service))")
    }

    /// Selects stalls whose culprit's name contains the text. Nil or empty: all.
    static func named(_ text: String?) -> SQLCondition {
        guard let text, !text.isEmpty else { return SQLCondition("1") }
        return SQLCondition("positionCaseInsensitive(culprit, \(SQLLiteral.text(text))) > 0")
    }

    /// Selects stalls that started in one of the ranges, given in nanoseconds. Days and hours are included for the partitions and
    /// the key.
    static func began(in ranges: [Range<Int64>]) -> SQLCondition {
        let parts = ranges.filter { !$0.isEmpty }.map { range in
            let (first, last) = (range.lowerBound, range.upperBound - 1)
            return """
                (day >= \(Hours.day(first)) AND day <= \(Hours.day(last)) AND hour >= \(Hours.hour(first)) AND hour <= \(Hours.hour(last)) \
                AND started >= \(first) AND started <= \(last))
                """
        }
        return SQLCondition(parts.isEmpty ? "0" : "(\(parts.joined(separator: " OR ")))")
    }
}

enum SQLSum {
    /// A sum of non-negative numbers, saturated to 64 bits.
    static func saturated(_ column: String) -> String {
        "if(sum(toFloat64(\(column))) >= 9.2e18, toInt64(9223372036854775807), toInt64(sum(\(column))))"
    }
}

/// The fingerprints of each fault. Reports state that one fingerprint belongs to the same fault as a newer one.
struct FaultAliases: Sendable {
    private var roots: [String: String] = [:]
    private(set) var names: [String] = []

    init() {}

    /// - Parameter pairs: In the order of their arrival.
    init(_ pairs: [(alias: String, fingerprint: String)]) {
        var parents: [String: String] = [:]
        func root(_ name: String) -> String {
            var path = [name]
            while let parent = parents[path[path.count - 1]] { path.append(parent) }
            // A long chain is followed only once.
            for step in path.dropLast() { parents[step] = path[path.count - 1] }
            return path[path.count - 1]
        }
        for (alias, fingerprint) in pairs {
            let (old, new) = (root(alias), root(fingerprint))
            if old != new { parents[old] = new }
        }
        names = parents.keys.sorted()
        roots = names.reduce(into: [:]) { $0[$1] = root($1) }
    }

    func root(_ fingerprint: String) -> String { roots[fingerprint] ?? fingerprint }

    /// The given faults' fingerprints, including all older ones.
    func members(of roots: some Sequence<String>) -> [String] {
        let roots = Set(roots)
        return roots.sorted() + names.filter { roots.contains(root($0)) }
    }

    /// An SQL expression for the current fingerprint of the one in `column`.
    func sql(_ column: String) -> String {
        if names.isEmpty { return column }
        return "transform(\(column), \(SQLLiteral.array(names)), \(SQLLiteral.array(names.map(root))), \(column))"
    }
}
