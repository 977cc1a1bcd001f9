/// Writes values into ClickHouse's SQL and into its tab-separated rows. All outside text passes through ``escape(_:into:)``.
enum SQLLiteral {
    /// `'…'`.
    static func text(_ value: String) -> String {
        var bytes: [UInt8] = [quote]
        escape(value.utf8, into: &bytes)
        bytes.append(quote)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// `('…', '…')`: the right side of IN. Without values, a list that matches nothing.
    static func list(_ values: some Sequence<String>) -> String {
        let literals = values.map(text)
        return "(" + (literals.isEmpty ? "''" : literals.joined(separator: ",")) + ")"
    }

    static func list(_ values: some Sequence<some BinaryInteger>) -> String {
        "(" + values.map { "\($0)" }.joined(separator: ",") + ")"
    }

    /// `['…', '…']`.
    static func array(_ values: some Sequence<String>) -> String { "[" + values.map(text).joined(separator: ",") + "]" }

    private static let quote = UInt8(ascii: "'")
    private static let backslash = UInt8(ascii: "\\")

    /// Uses the escapes that literals and tab-separated fields share. Other bytes are unchanged.
    static func escape(_ value: some Sequence<UInt8>, into bytes: inout [UInt8]) {
        for byte in value {
            let letter: Unicode.Scalar? =
                switch byte {
                case quote: "'"
                case backslash: "\\"
                case 0: "0"
                case 8: "b"
                case 9: "t"
                case 10: "n"
                case 12: "f"
                case 13: "r"
                default: nil
                }
            guard let letter else {
                bytes.append(byte)
                continue
            }
            bytes.append(backslash)
            bytes.append(UInt8(ascii: letter))
        }
    }

    /// Decodes the escapes of a field.
    static func unescaped(_ field: some Sequence<UInt8>) -> [UInt8] {
        var (bytes, isEscape): ([UInt8], Bool) = ([], false)
        for byte in field {
            if isEscape {
                isEscape = false
                switch byte {
                case UInt8(ascii: "0"): bytes.append(0)
                case UInt8(ascii: "b"): bytes.append(8)
                case UInt8(ascii: "t"): bytes.append(9)
                case UInt8(ascii: "n"): bytes.append(10)
                case UInt8(ascii: "f"): bytes.append(12)
                case UInt8(ascii: "r"): bytes.append(13)
                default: bytes.append(byte)
                }
            } else if byte == backslash {
                isEscape = true
            } else {
                bytes.append(byte)
            }
        }
        return bytes
    }
}

/// Rows to insert, in ClickHouse's format `TabSeparated`.
struct TabbedRows {
    private(set) var bytes: [UInt8]
    private(set) var count = 0
    private var isFirst = true

    /// - Parameter table: The table with its columns: `db.stall (team, id)`.
    init(into table: String) { bytes = Array("INSERT INTO \(table) FORMAT TabSeparated\n".utf8) }

    mutating func add(_ text: String) {
        separate()
        SQLLiteral.escape(text.utf8, into: &bytes)
    }

    mutating func add(_ number: some BinaryInteger) {
        separate()
        bytes += Array("\(number)".utf8)
    }

    /// Text that needs no escapes, such as Base64.
    mutating func add(plain text: some Sequence<UInt8>) {
        separate()
        bytes += text
    }

    mutating func add(_ texts: [String]) {
        add(plain: SQLLiteral.array(texts).utf8)
    }

    mutating func add(_ numbers: [Int64]) {
        add(plain: "[\(numbers.map { "\($0)" }.joined(separator: ","))]".utf8)
    }

    mutating func endRow() {
        bytes.append(UInt8(ascii: "\n"))
        (isFirst, count) = (true, count + 1)
    }

    private mutating func separate() {
        if !isFirst { bytes.append(UInt8(ascii: "\t")) }
        isFirst = false
    }
}
