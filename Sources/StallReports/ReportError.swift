import Glibc

/// Why reports could not be written, read or followed.
///
/// The text says what to do next. It never quotes a report: a file's contents may be hostile or private. Only the name of a file's schema is
/// in it, made visible and cut.
public struct ReportError: Error, Hashable, Sendable {
    /// For programs. The other properties are for users.
    public let code: Code
    /// The file or directory, for the caller to show. Not part of `description`.
    public let path: String?
    /// The specifics of this case, such as the JSON path of a wrong value.
    public let detail: String?
    /// The system's `errno`, if a system call failed.
    public let errorNumber: Int32?

    /// Creates an error, by default without path, detail and errno.
    public init(_ code: Code, path: String? = nil, detail: String? = nil, errorNumber: Int32? = nil) {
        (self.code, self.path, self.detail, self.errorNumber) = (code, path, detail, errorNumber)
    }

    /// The kind of error. More codes may be added: a `switch` needs a `default`.
    public struct Code: Hashable, Sendable {
        /// For logs and JSON; stable: `missing_directory`.
        public let name: String
        /// What happened and what to do about it, in one sentence.
        let advice: String

        init(_ name: String, _ advice: String) {
            self.name = name
            self.advice = advice
        }
    }
}

extension ReportError.Code {
    /// There is no directory at the path, and none could be created; or the path is empty or contains a zero byte.
    public static let missingDirectory = Self(
        "missing_directory",
        "there is no such report directory; check the path, or start a monitored process that writes there"
    )
    /// `ENOTDIR` (errno(3)).
    public static let notADirectory = Self(
        "not_a_directory",
        "the path, or a part of it, is not a directory; give the directory that holds the reports"
    )
    /// More than 4096 directories below a given one; the rest was not searched.
    public static let tooManyDirectories = Self(
        "too_many_directories",
        "there are too many directories below this one, and not all were looked into; give those that hold reports"
    )
    /// A directory below a given one, which was not searched.
    public static let nameNotUTF8 = Self(
        "name_not_utf8",
        "the directory's name is not UTF-8, so its reports cannot be read; rename it"
    )
    /// `EACCES` or `EPERM` (errno(3)).
    public static let permissionDenied = Self(
        "permission_denied",
        "access is not permitted; run as the user who owns the report directory, or change its owner"
    )
    /// `EROFS` (errno(3)).
    public static let readOnly = Self(
        "read_only",
        "the file system is read-only; choose a report directory on a writable one"
    )
    /// `ENOSPC` or `EDQUOT` (errno(3)).
    public static let full = Self(
        "full",
        "the file system is full, or a quota is used up; free space or lower the report limits"
    )
    /// `ENOENT` (errno(3)): removed in the meantime, or never there.
    public static let missingFile = Self(
        "missing_file",
        "the file is gone; it was removed, or made room for newer reports"
    )
    /// A symbolic link (`ELOOP`; links are not followed), a directory, a pipe, or something else that is not a regular file.
    public static let notAFile = Self(
        "not_a_file",
        "not a regular file, and a link is not followed; find out who put it there, and remove it"
    )
    /// Empty, or a JSON object that ends too early.
    public static let torn = Self("torn", "the file is empty or cut off, so no whole report is left in it; remove it")
    /// Not JSON, or not of the model's form; `detail` gives the place. Also: an id that differs from the one in the file's
    /// name.
    public static let malformed = Self(
        "malformed",
        "the file is not a valid report; remove it, or check it against the schema in config/"
    )
    /// More than 16 MiB; such a report is neither read nor written.
    public static let tooLarge = Self(
        "too_large",
        "the file is larger than any report of ours; find out who wrote it, and remove it"
    )
    /// More than 64 levels of nesting. Detected before the parser reads the text.
    public static let tooDeep = Self(
        "too_deep",
        "the file's JSON is nested deeper than any report of ours; find out who wrote it, and remove it"
    )
    /// The file's `schema` is not the one that this version reads; `detail` gives it, and the expected one.
    public static let unsupportedSchema = Self(
        "unsupported_schema",
        "the file was written for another schema than this version reads; read it with the version that wrote it"
    )
    /// Any other system error; see `errorNumber` where it is known.
    public static let io = Self("io", "the system refused a file operation; look at the disk and the system's log")
    /// Thrown by a follower once its caller has cancelled it.
    public static let cancelled = Self("cancelled", "following was ended by its caller")
}

extension ReportError: CustomStringConvertible {
    /// What to do about it, with the system's text for `errorNumber` and the `detail` in parentheses. Without the path.
    public var description: String {
        let reason = [errorNumber.map(errorText), detail].compactMap { $0 }.joined(separator: ", ")
        return reason.isEmpty ? code.advice : "\(code.advice) (\(reason))"
    }
}

extension ReportError {
    /// The same error, of this file.
    package func at(_ path: String) -> ReportError {
        ReportError(code, path: path, detail: detail, errorNumber: errorNumber)
    }

    /// What a failed system call on the store means to the user.
    init(errno number: Int32, path: String? = nil, detail: String? = nil) {
        self.init(Self.code(forErrno: number), path: path, detail: detail, errorNumber: number)
    }

    private static func code(forErrno number: Int32) -> Code {
        switch number {
        case ENOENT: .missingFile
        case ENOTDIR: .notADirectory
        case EACCES, EPERM: .permissionDenied
        case EROFS: .readOnly
        case ENOSPC, EDQUOT: .full
        case ELOOP: .notAFile
        default: .io
        }
    }
}

/// The system's text for an errno value. Any thread.
package func errorText(_ number: Int32) -> String {
    var buffer = [UInt8](repeating: 0, count: 128)
    let status = unsafe buffer.withUnsafeMutableBytes { bytes in
        unsafe strerror_r(number, bytes.bindMemory(to: CChar.self).baseAddress!, bytes.count)
    }
    return status == 0 ? String(decoding: buffer.prefix { $0 != 0 }, as: UTF8.self) : "errno \(number)"
}
