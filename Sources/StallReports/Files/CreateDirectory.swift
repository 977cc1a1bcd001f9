internal import Glibc

extension OpenDirectory {
    /// Makes the directory and the missing ones above it, each with mode 0700. One that is there is left as it is.
    static func create(path: String) throws(ReportError) {
        guard !path.isEmpty, !path.utf8.contains(0) else { throw ReportError(.missingDirectory, path: path) }
        do throws(ReportError) {
            try systemCall(path: path) { unsafe mkdir(path, 0o700) }
        } catch let error where error.errorNumber == EEXIST {
            return
        } catch let error where error.errorNumber == ENOENT {
            guard let parent = parent(of: path) else { throw error }
            try create(path: parent)
            try createLast(path: path)
        }
    }

    /// The path without its last component: `a/b/` is in `a`, `a` in `.`. Nil for `/` and `.`.
    static func parent(of path: String) -> String? {
        var rest = Substring(path)
        while rest.count > 1, rest.last == "/" { rest.removeLast() }
        guard rest != "/", rest != "." else { return nil }
        guard let slash = rest.lastIndex(of: "/") else { return "." }
        return slash == rest.startIndex ? "/" : String(rest[..<slash])
    }

    /// The part that `parent(of:)` leaves out.
    static func lastComponent(of path: String) -> String {
        path.split(separator: "/").last.map(String.init) ?? path
    }

    private static func createLast(path: String) throws(ReportError) {
        do throws(ReportError) {
            try systemCall(path: path) { unsafe mkdir(path, 0o700) }
        } catch let error where error.errorNumber == EEXIST {
            return
        }
    }
}
