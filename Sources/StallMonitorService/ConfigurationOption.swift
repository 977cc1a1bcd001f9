import Configuration
import StallMonitor

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

    /// The default, for the table.
    var defaultText: String { fallback ?? text(ConfigurationDraft()) ?? "none" }

    /// Form and range, for the table.
    var formText: String {
        switch form {
        case .bool: "bool"
        case .text: "text"
        case .names: "list of names"
        case .integer(let range): "\(range.lowerBound) to \(range.upperBound)"
        case .number(let range): "\(range.lowerBound.configurationText) to \(range.upperBound.configurationText)"
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
}

// MARK: - Options by form

extension ConfigurationOption {
    typealias Field<Value> = any WritableKeyPath<ConfigurationDraft, Value> & Sendable

    private init<Value>(
        _ key: String,
        _ field: Field<Value>,
        _ notation: Notation<Value>,
        _ summary: String,
        _ fallback: String? = nil
    ) {
        let configKey = ConfigKey(key.split(separator: ".").map(String.init))
        (self.key, self.form) = (key, notation.form)
        (self.summary, self.fallback) = (summary, fallback)
        text = { notation.text($0[keyPath: field]) }
        read = { config, draft in
            if let value = try await notation.fetch(config, configKey) { draft[keyPath: field] = value }
        }
    }

    static func bool(_ key: String, _ field: Field<Bool>, _ summary: String) -> Self {
        Self(key, field, .bool, summary)
    }

    static func text(_ key: String, _ field: Field<String>, _ summary: String, _ fallback: String? = nil) -> Self {
        Self(key, field, .string, summary, fallback)
    }

    static func text(_ key: String, _ field: Field<String?>, _ summary: String, _ fallback: String? = nil) -> Self {
        Self(key, field, Notation.string.orUnset, summary, fallback)
    }

    static func names(_ key: String, _ field: Field<Set<String>>, _ summary: String) -> Self {
        Self(key, field, .names, summary)
    }

    static func integer(_ option: NumericOption, _ field: Field<Int>, _ summary: String) -> Self {
        Self(option.key, field, .integer(option.range), summary)
    }

    static func integer(
        _ option: NumericOption,
        _ field: Field<Int?>,
        _ summary: String,
        _ fallback: String? = nil
    ) -> Self {
        Self(option.key, field, Notation.integer(option.range).orUnset, summary, fallback)
    }

    static func duration(_ option: NumericOption, _ field: Field<Duration>, _ summary: String) -> Self {
        Self(option.key, field, .duration(option), summary)
    }

    static func duration(
        _ option: NumericOption,
        _ field: Field<Duration?>,
        _ summary: String,
        _ fallback: String? = nil
    ) -> Self {
        Self(option.key, field, Notation.duration(option).orUnset, summary, fallback)
    }

    static func megabytes(_ option: NumericOption, _ field: Field<Int>, _ summary: String) -> Self {
        Self(option.key, field, .megabytes(option), summary)
    }

    static func megabytes(_ option: NumericOption, _ field: Field<Int?>, _ summary: String) -> Self {
        Self(option.key, field, Notation.megabytes(option).orUnset, summary)
    }

    static func percent(_ key: String, _ field: Field<Double>, _ summary: String) -> Self {
        Self(key, field, .percent, summary)
    }
}

/// How a value is written in a file.
private struct Notation<Value>: Sendable {
    let form: ConfigurationOption.Form
    /// Nil: the key is left out.
    let text: @Sendable (Value) -> String?
    /// Nil: the key is not set.
    let fetch: @Sendable (ConfigReader, ConfigKey) async throws -> Value?

    /// The same for a value that may be left out.
    var orUnset: Notation<Value?> {
        Notation<Value?>(
            form: form,
            text: { [text] in $0.flatMap(text) },
            // An unset key must give nil, not an optional that contains nil.
            fetch: { [fetch] in try await fetch($0, $1).map(Optional.some) }
        )
    }
}

extension Notation where Value == Bool {
    static var bool: Self { Self(form: .bool, text: { "\($0)" }, fetch: { try await $0.fetchBool(forKey: $1) }) }
}

extension Notation where Value == String {
    /// An empty text is none: a variable that a deployment leaves empty, or a key without a value.
    static var string: Self {
        Self(
            form: .text,
            text: { $0 },
            fetch: { try await $0.fetchString(forKey: $1).flatMap { $0.isEmpty ? nil : $0 } }
        )
    }
}

extension Notation where Value == Set<String> {
    static var names: Self {
        Self(
            form: .names,
            text: { $0.isEmpty ? nil : $0.sorted().joined(separator: ", ") },
            fetch: { try await $0.fetchStringArray(forKey: $1).map(Set.init) }
        )
    }
}

extension Notation where Value == Int {
    static func integer(_ range: ClosedRange<Int>) -> Self {
        Self(form: .integer(range), text: { "\($0)" }, fetch: { try await $0.fetchInt(forKey: $1) })
    }

    /// A number of bytes.
    static func megabytes(_ option: NumericOption) -> Self {
        Self(
            form: .integer(option.range),
            text: { (Double($0) / Double(1 << 20)).configurationText },
            fetch: { try await $0.fetchInt(forKey: $1).map { min(max($0, -(1 << 40)), 1 << 40) << 20 } }
        )
    }
}

extension Notation where Value == Duration {
    /// A whole number of the unit in the key's name. Every number gives a duration; the range check finds one that is too long.
    static func duration(_ option: NumericOption) -> Self {
        Self(
            form: .integer(option.range),
            text: { ($0 / option.unit).configurationText },
            fetch: { reader, key in
                try await reader.fetchInt(forKey: key).map { option.unit * min(max($0, -1_000_000_000), 1_000_000_000) }
            }
        )
    }
}

extension Notation where Value == Double {
    /// A share of 1.
    static var percent: Self {
        Self(
            form: .number(0.0001...100),
            text: { ($0 * 100).configurationText },
            fetch: { try await $0.fetchDouble(forKey: $1).map { $0 / 100 } }
        )
    }
}
