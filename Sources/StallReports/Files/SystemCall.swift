internal import Glibc

/// Makes a system call that answers −1 on failure: again when a signal interrupted it, throwing what `errno` says otherwise.
@discardableResult
func systemCall<Result: SignedInteger>(path: String?, _ call: () -> Result) throws(ReportError) -> Result {
    while true {
        let result = call()
        if result >= 0 { return result }
        let number = errno
        if number != EINTR { throw ReportError(errno: number, path: path) }
    }
}
