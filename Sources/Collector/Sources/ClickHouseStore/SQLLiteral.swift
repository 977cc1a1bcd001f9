import Foundation

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

/// The rows of an answer in the format `TabSeparated`.
///
/// If the answer has already begun, an error may follow a status of 200 and some rows (18.16 writes its text into the rows). So
/// each row of a query ends with a mark that no text in the row can contain, and an answer is accepted only if all its rows end
/// with it.
struct TabbedAnswer {
    struct Row {
        fileprivate let fields: [ArraySlice<UInt8>]

        func bytes(_ index: Int) -> [UInt8] { SQLLiteral.unescaped(fields[index]) }
        func text(_ index: Int) -> String { String(decoding: bytes(index), as: UTF8.self) }
        func number(_ index: Int) throws(ClickHouseError) -> Int64 {
            guard let number = Int64(String(decoding: fields[index], as: UTF8.self)) else { throw Self.notANumber }
            return number
        }
        func unsigned(_ index: Int) throws(ClickHouseError) -> UInt64 {
            guard let number = UInt64(String(decoding: fields[index], as: UTF8.self)) else { throw Self.notANumber }
            return number
        }
        private static let notANumber = ClickHouseError(garbled: "ClickHouse's answer has no number where one belongs")
    }

    /// The last column of each query. It produces a tab and this text; a tab inside a value is escaped.
    static let mark = "'.'"
    private static let end = Array("\t.".utf8)

    let rows: [Row]

    /// - Parameter columns: The number of columns of each row, without the mark.
    init(_ bytes: [UInt8], columns: Int) throws(ClickHouseError) {
        var rows: [Row] = []
        var rest = bytes[...]
        while !rest.isEmpty {
            guard let newline = rest.firstIndex(of: UInt8(ascii: "\n")), rest[..<newline].hasSuffix(Self.end) else {
                throw Self.broken(rest)
            }
            let line = rest[..<newline].dropLast(Self.end.count)
            let fields = line.split(separator: UInt8(ascii: "\t"), omittingEmptySubsequences: false)
            guard fields.count == columns else { throw Self.broken(rest) }
            rows.append(Row(fields: fields))
            rest = rest[(newline + 1)...]
        }
        self.rows = rows
    }

    private static func broken(_ rest: ArraySlice<UInt8>) -> ClickHouseError {
        let text = String(decoding: rest.prefix(2000), as: UTF8.self)
        guard let range = text.range(of: "Code: "),
            let code = ClickHouseError.code(in: String(text[range.lowerBound...]))
        else {
            return ClickHouseError(garbled: "ClickHouse's answer ends within a row")
        }
        return ClickHouseError(code: code, String(text[range.lowerBound...]))
    }
}

extension ArraySlice<UInt8> {
    fileprivate func hasSuffix(_ other: [UInt8]) -> Bool { suffix(other.count).elementsEqual(other) }
}
