import Foundation
import GRDB
import GRDBSQLite
import Glibc

extension Database {
    /// Executes a statement of which a transaction has very many, with other values each. `Statement.execute(arguments:)` does the same, and takes
    /// as long for the values as SQLite takes for the row.
    ///
    /// - Parameter sql: Changes rows, and returns none.
    /// - Parameter values: As many as the statement has.
    func write(_ sql: String, _ values: [DatabaseValue]) throws {
        let statement = unsafe try cachedStatement(sql: sql).sqliteStatement
        defer {
            unsafe sqlite3_reset(statement)
            unsafe sqlite3_clear_bindings(statement)
        }
        var code = SQLITE_OK
        for (index, value) in values.enumerated() where code == SQLITE_OK {
            code = unsafe Self.bind(value, to: CInt(index + 1), of: statement)
        }
        if code == SQLITE_OK { code = unsafe sqlite3_step(statement) }
        guard code == SQLITE_DONE else {
            throw unsafe DatabaseError(
                resultCode: ResultCode(rawValue: code),
                message: String(cString: sqlite3_errmsg(sqliteConnection)),
                sql: sql
            )
        }
    }

    /// Tells SQLite to copy a value.
    fileprivate static var copies: sqlite3_destructor_type {
        unsafe unsafeBitCast(-1, to: sqlite3_destructor_type.self)
    }

    private static func bind(_ value: DatabaseValue, to place: CInt, of statement: SQLiteStatement) -> CInt {
        switch value.storage {
        case .null: return unsafe sqlite3_bind_null(statement, place)
        case .int64(let number): return unsafe sqlite3_bind_int64(statement, place, number)
        case .double(let number): return unsafe sqlite3_bind_double(statement, place, number)
        case .string(let text):
            return unsafe text.withCString { start in
                unsafe sqlite3_bind_text(statement, place, start, CInt(text.utf8.count), Self.copies)
            }
        case .blob(let data):
            // Of no bytes there is no address, and SQLite would take it for NULL.
            if data.isEmpty { return unsafe sqlite3_bind_zeroblob(statement, place, 0) }
            return unsafe data.withUnsafeBytes { bytes in
                unsafe sqlite3_bind_blob(statement, place, bytes.baseAddress, CInt(bytes.count), Self.copies)
            }
        }
    }
}

// Safe: the statement belongs to the database, which keeps it as long as this object does.

/// A statement that a transaction executes for each of its rows. It is looked up by its text only once, and a text that is the same as in the
/// row before is not passed to SQLite again: most rows have the same service, release and verdict.
///
/// For the thread of the transaction. Its values are in the order of the statement; the count of them must be right.
@safe final class RepeatedWrite {
    private let database: Database
    private let sql: String
    private let statement: Statement
    /// The texts that are bound, by place.
    private var texts: [String?]
    private var place = 0

    /// - Parameter sql: Changes rows, and returns none.
    init(_ database: Database, _ sql: String) throws {
        (self.database, self.sql) = (database, sql)
        statement = try database.cachedStatement(sql: sql)
        texts = Array(repeating: nil, count: unsafe Int(sqlite3_bind_parameter_count(statement.sqliteStatement)))
    }

    deinit { unsafe _ = sqlite3_clear_bindings(statement.sqliteStatement) }

    func bind(_ numbers: Int64...) throws {
        for number in numbers {
            place += 1
            try check(unsafe sqlite3_bind_int64(statement.sqliteStatement, CInt(place), number))
        }
    }

    func bind(_ texts: String...) throws {
        for text in texts { try bind(text) }
    }

    private func bind(_ text: String) throws {
        place += 1
        if let bound = texts[place - 1], Self.isSame(bound, text) { return }
        var text = text
        try check(
            text.withUTF8 { bytes in
                // Of no bytes there may be no address, and SQLite would take it for NULL.
                guard let start = bytes.baseAddress else {
                    return unsafe sqlite3_bind_text(statement.sqliteStatement, CInt(place), "", 0, Database.copies)
                }
                let count = CInt(clamping: bytes.count)
                return unsafe start.withMemoryRebound(to: CChar.self, capacity: bytes.count) { start in
                    unsafe sqlite3_bind_text(statement.sqliteStatement, CInt(place), start, count, Database.copies)
                }
            }
        )
        texts[place - 1] = text
    }

    /// Byte by byte: for `==`, an accented letter is the same in all its forms.
    private static func isSame(_ one: String, _ other: String) -> Bool {
        guard one.utf8.count == other.utf8.count else { return false }
        var (one, other) = (one, other)
        return one.withUTF8 { one in
            other.withUTF8 { other in
                guard let start = one.baseAddress, let otherStart = other.baseAddress else { return true }
                return unsafe memcmp(start, otherStart, one.count) == 0
            }
        }
    }

    /// Executes it with the values that were bound.
    ///
    /// - Parameter last: The last value, if it is one that need not be copied.
    func run(_ last: [UInt8]? = nil) throws {
        defer { place = 0 }
        guard let last else { return try step() }
        try unsafe last.withUnsafeBytes { bytes in
            let (place, count) = (CInt(place + 1), CInt(clamping: bytes.count))
            let code = unsafe bytes.baseAddress.map {
                unsafe sqlite3_bind_blob(statement.sqliteStatement, place, $0, count, nil)
            }
            try check(unsafe code ?? sqlite3_bind_zeroblob(statement.sqliteStatement, place, 0))
            defer { unsafe _ = sqlite3_bind_null(statement.sqliteStatement, place) }
            try step()
        }
    }

    private func step() throws {
        let code = unsafe sqlite3_step(statement.sqliteStatement)
        defer { unsafe _ = sqlite3_reset(statement.sqliteStatement) }
        if code != SQLITE_DONE { try fail(code) }
    }

    private func check(_ code: CInt) throws { if code != SQLITE_OK { try fail(code) } }

    private func fail(_ code: CInt) throws {
        throw unsafe DatabaseError(
            resultCode: ResultCode(rawValue: code),
            message: String(cString: sqlite3_errmsg(database.sqliteConnection)),
            sql: sql
        )
    }
}
