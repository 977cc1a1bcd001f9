import Foundation
public import StallStore

/// The address of a ClickHouse store:
/// `clickhouse://[user[:password]@]host[:port][,host[:port]…]/database[?cluster=name&quorum=2&password-file=path]`.
public struct ClickHouseAddress: Hashable, Sendable, CustomStringConvertible {
    /// One server's HTTP interface.
    public struct Endpoint: Hashable, Sendable {
        /// A host name or an IP address. An IPv6 address has no brackets here.
        public var host: String
        /// The port of the HTTP interface, from 1 to 65535.
        public var port: Int

        /// `host:port`, with brackets around an IPv6 address.
        var authority: String { "\(host.contains(":") ? "[\(host)]" : host):\(port)" }
    }

    /// The prefix of every address of a ClickHouse store.
    public static let scheme = "clickhouse://"

    /// The servers, at least one. Each of them can answer for the whole store. The default port is 8123.
    public var endpoints: [Endpoint]
    /// The database's name: letters, digits and `_`, at most 64 bytes, and not a digit first. It is created if it is missing.
    public var database: String
    /// Nil: ClickHouse's user `default`.
    public var user: String?
    /// Nil: no password is sent. Never appears in messages.
    public var password: String?
    /// The cluster's name in the servers' configuration. It has the form of ``database``. Nil: a single server.
    public var cluster: String?
    /// The number of replicas that must have a stall before it is acknowledged, at most 100. 0: one replica suffices. More needs
    /// a cluster.
    public var quorum = 0

    /// Parses an address, and reads the password file if it names one.
    ///
    /// - Throws: ``StoreError`` with the mistake. Its text never contains the password.
    public init(_ text: String) throws(StoreError) {
        guard text.hasPrefix(Self.scheme) else { throw Self.wrong("it begins with \(Self.scheme)") }
        var rest = text.dropFirst(Self.scheme.count)
        let options = rest.firstIndex(of: "?").map { rest[rest.index(after: $0)...] } ?? ""
        rest = rest.prefix { $0 != "?" }
        guard let slash = rest.firstIndex(of: "/") else { throw Self.wrong("the name of the database is missing") }
        database = String(rest[rest.index(after: slash)...])
        guard Self.isName(database) else { throw Self.wrong("the database's name has letters, digits and _ only") }
        rest = rest[..<slash]
        if let at = rest.lastIndex(of: "@") {
            let parts = rest[..<at].split(separator: ":", maxSplits: 1, omittingEmptySubsequences: false)
            let names = parts.compactMap(\.removingPercentEncoding)
            guard names.count == parts.count else { throw Self.wrong("in user and password, write % as %25") }
            (user, password) = (names[0], names.count > 1 ? names[1] : nil)
            rest = rest[rest.index(after: at)...]
        }
        endpoints = try rest.split(separator: ",", omittingEmptySubsequences: false).map(Self.endpoint)
        try take(options)
    }

    private mutating func take(_ options: Substring) throws(StoreError) {
        for option in options.split(separator: "&") {
            let parts = option.split(separator: "=", maxSplits: 1).compactMap(\.removingPercentEncoding)
            guard parts.count == 2 else { throw Self.wrong("an option is NAME=VALUE") }
            switch parts[0] {
            case "cluster":
                guard Self.isName(parts[1]) else { throw Self.wrong("a cluster's name has letters, digits and _ only") }
                cluster = parts[1]
            case "quorum":
                guard let number = Int(parts[1]), (0...100).contains(number) else {
                    throw Self.wrong("'quorum' is a number of replicas")
                }
                quorum = number
            case "password-file":
                guard let text = try? String(contentsOfFile: parts[1], encoding: .utf8) else {
                    throw Self.wrong("the password's file cannot be read")
                }
                password = text.trimmingCharacters(in: .newlines)
            default:
                throw Self.wrong("the options are 'cluster', 'quorum' and 'password-file'")
            }
        }
        guard quorum == 0 || cluster != nil else { throw Self.wrong("a quorum needs a cluster") }
    }

    private static func endpoint(_ text: Substring) throws(StoreError) -> Endpoint {
        var (host, port) = (text, 8123)
        // The colons of an IPv6 address are in brackets.
        if let colon = text.lastIndex(of: ":"), !text[colon...].contains("]") {
            guard let number = Int(text[text.index(after: colon)...]), (1...65535).contains(number) else {
                throw wrong("a port is a number from 1 to 65535")
            }
            (host, port) = (text[..<colon], number)
        }
        if host.hasPrefix("["), host.hasSuffix("]") { host = host.dropFirst().dropLast() }
        guard !host.isEmpty, host.utf8.allSatisfy({ $0 > 32 && $0 < 127 }) else { throw wrong("a host is missing") }
        return Endpoint(host: String(host), port: port)
    }

    /// Whether the text is a name that needs no quotes in SQL.
    private static func isName(_ text: some StringProtocol) -> Bool {
        guard let first = text.utf8.first, !text.isEmpty, text.utf8.count <= 64 else { return false }
        func isLetter(_ byte: UInt8) -> Bool { (byte | 0x20) >= 97 && (byte | 0x20) <= 122 || byte == 95 }
        return isLetter(first) && text.utf8.allSatisfy { isLetter($0) || (48...57).contains($0) }
    }

    private static func wrong(_ reason: String) -> StoreError {
        StoreError("a ClickHouse store is clickhouse://host:port/database[?cluster=name]: \(reason)")
    }

    /// The address without user and password, for logs.
    public var description: String {
        let hosts = endpoints.map(\.authority).joined(separator: ",")
        return Self.scheme + hosts + "/" + database + (cluster.map { "?cluster=\($0)" } ?? "")
    }
}
