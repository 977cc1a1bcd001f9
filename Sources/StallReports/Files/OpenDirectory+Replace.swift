// Whole or not at all: a reader sees the old file or the new one, and after a crash one of the two is there.

extension OpenDirectory {
    /// Puts `bytes` where `name` is or will be. When this returns they are on the disk.
    ///
    /// - Parameter owner: whose the file is to be, if not ours: an operator's command must not take a server's files away from it.
    func replaceFile(_ name: String, with bytes: [UInt8], ownedAs owner: FileStatus? = nil) throws(ReportError) {
        let draft = Self.newDraftName()
        let file = try createFile(draft)
        do throws(ReportError) {
            _ = file.tryLock()
            if let owner { try file.giveTo(owner) }
            try file.write(bytes)
            try file.synchronize()
            try rename(draft, to: name)
        } catch {
            try? remove(draft)
            throw error
        }
        try synchronize()
    }

    /// Removes the drafts of writers that died. A living writer holds its draft's lock.
    func removeAbandonedDrafts() throws(ReportError) {
        for name in try names() where Self.isDraft(name) {
            guard let file = try? openFile(name), file.tryLock() else { continue }
            try? remove(name)
        }
    }
}

// Names of files that are being written.
extension OpenDirectory {
    static func newDraftName() -> String { ".draft-\(ULID.make())" }

    static func isDraft(_ name: String) -> Bool { name.hasPrefix(".draft-") && ULID(String(name.dropFirst(7))) != nil }
}
