import CIndexSQLite
import Glibc

/// A SQLite database that holds blobs. For one thread at a time.
///
/// It is a cache, so nothing is synchronized to the disk. A power failure may damage it; its checksums detect that.
@safe final class Database {
    /// Why the file cannot be used.
    enum Problem: Error, Hashable {
        /// This version did not write its contents: the index must be made again.
        case damaged
        /// It cannot be used now: another process uses it, the disk is full, it is read-only, and so on.
        case unusable(String)
        /// The file was removed after it was opened. There may be a new one in its place.
        case removed
    }

    private let handle: OpaquePointer

    /// How long to wait for another process, in milliseconds.
    private static let patience: Int32 = 2000

    /// Opens the file, and creates it if it is missing.
    init(path: String) throws(Problem) {
        var handle: OpaquePointer?
        let flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_CREATE
        let code = unsafe sqlite3_open_v2(path, &handle, flags, nil)
        guard code == SQLITE_OK, let handle = unsafe handle else {
            let problem = unsafe Self.problem(code, handle)
            unsafe sqlite3_close(handle)
            throw problem
        }
        unsafe self.handle = handle
        unsafe sqlite3_busy_timeout(handle, Self.patience)
        unsafe sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, 64 << 20)
        // Nothing in the file may run code: no triggers, no views.
        unsafe sqlite3_limit(handle, SQLITE_LIMIT_TRIGGER_DEPTH, 0)
        let pragmas: [StaticString] = [
            "PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON", "PRAGMA page_size = 65536",
            "PRAGMA cache_size = -2048", "PRAGMA synchronous = OFF", "PRAGMA temp_store = MEMORY",
        ]
        for pragma in pragmas { try run(pragma) }
    }

    deinit { unsafe sqlite3_close(handle) }

    /// Runs a statement that returns no rows. Values are bound, so they never become part of the SQL text.
    func run(_ sql: StaticString, _ values: borrowing [Value] = []) throws(Problem) {
        try forEachRow(sql, values) { _ in }
    }

    enum Value {
        case integer(Int64)
        case blob([UInt8])
    }

    /// A row of results. Valid only inside the closure that receives it.
    @safe struct Row {
        fileprivate let statement: OpaquePointer

        func integer(_ column: Int32) -> Int64 { unsafe sqlite3_column_int64(statement, column) }

        /// Empty if the column is not a blob.
        func blob(_ column: Int32) -> ByteView {
            guard unsafe sqlite3_column_type(statement, column) == SQLITE_BLOB else {
                return unsafe ByteView(UnsafeRawBufferPointer(start: nil, count: 0))
            }
            let start = unsafe sqlite3_column_blob(statement, column)
            let count = unsafe Int(sqlite3_column_bytes(statement, column))
            return unsafe ByteView(UnsafeRawBufferPointer(start: start, count: count))
        }
    }

    func forEachRow(
        _ sql: StaticString,
        _ values: borrowing [Value] = [],
        _ body: (Row) -> Void
    ) throws(Problem) {
        var statement: OpaquePointer?
        let prepared = unsafe sqlite3_prepare_v2(handle, "\(sql)", -1, &statement, nil)
        guard prepared == SQLITE_OK, let statement = unsafe statement else {
            throw unsafe Self.problem(prepared, handle)
        }
        defer { unsafe sqlite3_finalize(statement) }
        unsafe try Self.bind(values, to: statement)
        while true {
            let code = unsafe sqlite3_step(statement)
            if code == SQLITE_DONE { return }
            guard code == SQLITE_ROW else { throw unsafe Self.problem(code, handle) }
            unsafe body(Row(statement: statement))
        }
    }

    private static func bind(_ values: borrowing [Value], to statement: OpaquePointer) throws(Problem) {
        for index in values.indices {
            let place = Int32(index + 1)
            let code =
                switch values[index] {
                case .integer(let number): unsafe sqlite3_bind_int64(statement, place, number)
                // SQLite makes its own copy.
                case .blob(let bytes):
                    unsafe sqlite3_bind_blob64(
                        statement,
                        place,
                        bytes,
                        UInt64(bytes.count),
                        unsafeBitCast(-1, to: sqlite3_destructor_type.self)
                    )
                }
            // Too large a value: in a file, such a length is damage.
            guard code == SQLITE_OK else { throw .unusable(text(code)) }
        }
    }

    private static func text(_ code: Int32) -> String { unsafe String(cString: sqlite3_errstr(code)) }

    /// Whether the system permits the file to be written.
    private static func isWritable(_ handle: OpaquePointer?) -> Bool {
        guard let handle = unsafe handle, let file = unsafe sqlite3_db_filename(handle, "main") else { return false }
        return unsafe access(file, W_OK) == 0
    }

    /// SQLITE_READONLY_DIRECTORY and SQLITE_READONLY_DBMOVED, which Swift does not import.
    private static let (directoryIsReadOnly, fileHasMoved) = (SQLITE_READONLY | 6 << 8, SQLITE_READONLY | 4 << 8)

    private static func problem(_ code: Int32, _ handle: OpaquePointer?) -> Problem {
        switch code & 0xff {
        case SQLITE_BUSY, SQLITE_LOCKED, SQLITE_FULL, SQLITE_IOERR, SQLITE_NOMEM, SQLITE_CANTOPEN, SQLITE_PERM,
            SQLITE_AUTH:
            return .unusable(text(code))
        case SQLITE_READONLY:
            let exact = unsafe sqlite3_extended_errcode(handle)
            if exact == fileHasMoved { return .removed }
            // A damaged file can be read-only to SQLite, too.
            return unsafe exact != directoryIsReadOnly && isWritable(handle) ? .damaged : .unusable(text(code))
        // Not a usable file: damaged, with other tables, or written by an incompatible version of SQLite.
        default: return .damaged
        }
    }
}
