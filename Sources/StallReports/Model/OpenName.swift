/// A name from a list that may grow: a later version's name is kept and written back unchanged.
///
/// Compare with the static constants of the type; a `switch` over them needs a `default`.
public protocol OpenName: RawRepresentable, Codable, Hashable, Sendable, CustomStringConvertible
where RawValue == String {
    /// Accepts any name, known or not.
    init(rawValue: String)
}

extension OpenName {
    /// As in JSON. From a file it may be any text: show it through ``VisibleText``.
    public var description: String { rawValue }
}
