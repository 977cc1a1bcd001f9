import Foundation

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
