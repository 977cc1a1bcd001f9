internal import Glibc

extension ReportError {
    /// What a failed system call on the store means to its user.
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
func errorText(_ number: Int32) -> String {
    var buffer = [UInt8](repeating: 0, count: 128)
    let status = unsafe buffer.withUnsafeMutableBytes { bytes in
        unsafe strerror_r(number, bytes.bindMemory(to: CChar.self).baseAddress!, bytes.count)
    }
    return status == 0 ? String(decoding: buffer.prefix { $0 != 0 }, as: UTF8.self) : "errno \(number)"
}
