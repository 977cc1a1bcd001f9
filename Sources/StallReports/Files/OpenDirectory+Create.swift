internal import Glibc

extension OpenDirectory {
    /// Makes the directory and the missing ones above it, each with mode 0700. One that is there is left as it is.
    static func create(path: String) throws(ReportError) {
        guard !path.isEmpty, !path.utf8.contains(0) else { throw ReportError(.missingDirectory, path: path) }
        if try make(path) { return }
        guard let parent = parent(of: path) else { throw ReportError(.missingDirectory, path: path) }
        try create(path: parent)
        guard try make(path) else { throw ReportError(.missingDirectory, path: path) }
    }

    /// Whose the files are that we make here. Not always ours: a file server can take root for nobody.
    func ownerOfNewFiles() throws(ReportError) -> UInt32 {
        let draft = Self.newDraftName()
        let file = try createFile(draft)
        defer { try? remove(draft) }
        return try file.status().owner
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

    /// False when the directory above is missing.
    private static func make(_ path: String) throws(ReportError) -> Bool {
        guard unsafe mkdir(path, 0o700) != 0 else { return true }
        switch errno {
        case EEXIST: return true
        case ENOENT: return false
        case let number: throw ReportError(errno: number, path: path)
        }
    }
}
