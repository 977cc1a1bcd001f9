import Foundation
import GRDB
import GRDBSQLite

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

    /// SQLite copies the value.
    private static func bind(_ value: DatabaseValue, to place: CInt, of statement: SQLiteStatement) -> CInt {
        let copies = unsafe unsafeBitCast(-1, to: sqlite3_destructor_type.self)
        switch value.storage {
        case .null: return unsafe sqlite3_bind_null(statement, place)
        case .int64(let number): return unsafe sqlite3_bind_int64(statement, place, number)
        case .double(let number): return unsafe sqlite3_bind_double(statement, place, number)
        case .string(let text):
            return unsafe text.withCString { start in
                unsafe sqlite3_bind_text(statement, place, start, CInt(text.utf8.count), copies)
            }
        case .blob(let data):
            // Of no bytes there is no address, and SQLite would take it for NULL.
            if data.isEmpty { return unsafe sqlite3_bind_zeroblob(statement, place, 0) }
            return unsafe data.withUnsafeBytes { bytes in
                unsafe sqlite3_bind_blob(statement, place, bytes.baseAddress, CInt(bytes.count), copies)
            }
        }
    }
}
