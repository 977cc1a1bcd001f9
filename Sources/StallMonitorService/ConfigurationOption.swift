import Configuration
import StallDetection
import StallMonitor
import StallReports

/// One key of a configuration file: its name, form and range, and the option that it sets.
///
/// The list of all options drives both the reader and the table in the documentation.
struct ConfigurationOption: Sendable {
    enum Form: Hashable, Sendable {
        case bool, text, names
        case integer(ClosedRange<Int>)
        case number(ClosedRange<Double>)
    }

    /// The key, relative to the scope; its parts are separated by dots: `limits.reports`.
    let key: String
    let form: Form
    /// The meaning, in one line.
    let summary: String
    /// Replaces the default value in the table where a text is clearer.
    let fallback: String?
    /// The value as it would be written in a file. Nil: not set.
    let text: @Sendable (ConfigurationDraft) -> String?
    /// Stores the value if the key is set.
    let read: @Sendable (ConfigReader, inout ConfigurationDraft) async throws -> Void

    var configKey: ConfigKey { ConfigKey(key.split(separator: ".").map(String.init)) }

    /// The default, for the table.
    var defaultText: String { fallback ?? text(ConfigurationDraft()) ?? "none" }

    /// Form and range, for the table.
    var formText: String {
        switch form {
        case .bool: "bool"
        case .text: "text"
        case .names: "list of names"
        case .integer(let range): "\(range.lowerBound) to \(range.upperBound)"
        case .number(let range): "\(Self.decimal(range.lowerBound)) to \(Self.decimal(range.upperBound))"
        }
    }

    /// Whether a running monitor applies a new value: see `StallMonitor.reconfigure(_:)`.
    var isLive: Bool {
        key == "logLevel" || ConfigurationChange.liveKeys.contains(String(key.prefix { $0 != "." }))
    }

    /// A line of the documentation's table.
    var row: String {
        "| `\(key)` | \(formText) | \(defaultText) | \(isLive ? "at once" : "at a restart") | \(summary) |"
    }

    /// The table in the documentation.
    static var table: String {
        (["| key | form | default | changes | what it is |", "|---|---|---|---|---|"] + all.map(\.row))
            .map { $0 + "\n" }.joined()
    }

    static func decimal(_ number: Double) -> String {
        // Multiplying a share by 100 is not exact, and would print many nines.
        let number = (number * 1e6).rounded() / 1e6
        return Int(exactly: number).map(String.init) ?? "\(number)"
    }
}

// MARK: - Options by form

extension ConfigurationOption {
    typealias Field<Value> = any WritableKeyPath<ConfigurationDraft, Value> & Sendable

    private init<Value>(
        _ key: String,
        _ form: Form,
        _ field: Field<Value>,
        _ summary: String,
        _ fallback: String? = nil,
        text: @escaping @Sendable (Value) -> String?,
        fetch: @escaping @Sendable (ConfigReader, ConfigKey) async throws -> Value?
    ) {
        let configKey = ConfigKey(key.split(separator: ".").map(String.init))
        (self.key, self.form, self.summary, self.fallback) = (key, form, summary, fallback)
        self.text = { text($0[keyPath: field]) }
        read = { config, draft in
            if let value = try await fetch(config, configKey) { draft[keyPath: field] = value }
        }
    }

    static func bool(_ key: String, _ field: Field<Bool>, _ summary: String) -> Self {
        Self(key, .bool, field, summary, text: { "\($0)" }, fetch: { try await $0.fetchBool(forKey: $1) })
    }

    static func text(_ key: String, _ field: Field<String>, _ summary: String, _ fallback: String? = nil) -> Self {
        Self(key, .text, field, summary, fallback, text: { $0 }, fetch: { try await $0.fetchString(forKey: $1) })
    }

    static func text(_ key: String, _ field: Field<String?>, _ summary: String, _ fallback: String? = nil) -> Self {
        // Here and below for optional values: an unset key must give nil, not an optional that contains nil.
        Self(
            key,
            .text,
            field,
            summary,
            fallback,
            text: { $0 },
            fetch: { try await $0.fetchString(forKey: $1).map(Optional.some) }
        )
    }

    static func names(_ key: String, _ field: Field<Set<String>>, _ summary: String) -> Self {
        Self(
            key,
            .names,
            field,
            summary,
            text: { $0.isEmpty ? nil : $0.sorted().joined(separator: ", ") },
            fetch: { try await $0.fetchStringArray(forKey: $1).map(Set.init) }
        )
    }

    static func integer(_ key: String, _ field: Field<Int>, _ range: ClosedRange<Int>, _ summary: String) -> Self {
        Self(key, .integer(range), field, summary, text: { "\($0)" }, fetch: { try await $0.fetchInt(forKey: $1) })
    }

    static func integer(
        _ key: String,
        _ field: Field<Int?>,
        _ range: ClosedRange<Int>,
        _ summary: String,
        _ fallback: String? = nil
    ) -> Self {
        Self(
            key,
            .integer(range),
            field,
            summary,
            fallback,
            text: { $0.map { "\($0)" } },
            fetch: { try await $0.fetchInt(forKey: $1).map(Optional.some) }
        )
    }

    /// A whole number of the unit in the key's name. Every number gives a duration; the range check finds one that is too long.
    static func duration(
        _ key: String,
        _ field: Field<Duration>,
        _ range: ClosedRange<Int>,
        _ summary: String
    ) -> Self {
        let unit = unit(of: key)
        return Self(
            key,
            .integer(range),
            field,
            summary,
            text: { decimal($0 / unit) },
            fetch: { try await $0.fetchInt(forKey: $1).map { duration($0, of: unit) } }
        )
    }

    static func duration(
        _ key: String,
        _ field: Field<Duration?>,
        _ range: ClosedRange<Int>,
        _ summary: String,
        _ fallback: String? = nil
    ) -> Self {
        let unit = unit(of: key)
        return Self(
            key,
            .integer(range),
            field,
            summary,
            fallback,
            text: { $0.map { decimal($0 / unit) } },
            fetch: { try await $0.fetchInt(forKey: $1).map { .some(duration($0, of: unit)) } }
        )
    }

    static func megabytes(_ key: String, _ field: Field<Int>, atMost most: Int, _ summary: String) -> Self {
        Self(
            key,
            .integer(1...most),
            field,
            summary,
            text: { decimal(Double($0) / Double(1 << 20)) },
            fetch: { try await $0.fetchInt(forKey: $1).map(bytes) }
        )
    }

    static func megabytes(_ key: String, _ field: Field<Int?>, atMost most: Int, _ summary: String) -> Self {
        Self(
            key,
            .integer(1...most),
            field,
            summary,
            text: { $0.map { decimal(Double($0) / Double(1 << 20)) } },
            fetch: { try await $0.fetchInt(forKey: $1).map { .some(bytes($0)) } }
        )
    }

    static func percent(_ key: String, _ field: Field<Double>, _ summary: String) -> Self {
        Self(
            key,
            .number(0.0001...100),
            field,
            summary,
            text: { decimal($0 * 100) },
            fetch: { try await $0.fetchDouble(forKey: $1).map { $0 / 100 } }
        )
    }

    private static func unit(of key: String) -> Duration {
        key.hasSuffix("Milliseconds") ? .milliseconds(1) : .seconds(1)
    }

    private static func duration(_ count: Int, of unit: Duration) -> Duration {
        unit * min(max(count, -1_000_000_000), 1_000_000_000)
    }

    private static func bytes(_ megabytes: Int) -> Int { min(max(megabytes, -1), 1 << 40) << 20 }
}
