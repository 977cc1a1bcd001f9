package import StallReports
import Synchronization

/// Report directories for a command that reads them: through indexes where these help.
///
/// An index is only a shorter way to the same answer. It can be deleted at any time.
public final class IndexedReports: Sendable {
    /// Whether directories get indexes.
    public enum Use: Hashable, Sendable {
        case never
        /// Large directories, from 2000 reports on.
        case ifLarge
        case always
    }

    private let use: Use
    private let folder: IndexFolder?
    private let notes: DirectoryIndex.Notes
    private let known = Mutex([String: DirectoryIndex]())

    /// - Parameters:
    ///   - progress: Is called while an index is made, with the number of reports read and of all. Any thread.
    ///   - done: Is called when no index is being made any more. Any thread.
    ///   - tell: Is called with a sentence about an index that cannot be used. Any thread.
    public init(
        use: Use = .ifLarge,
        progress: @escaping @Sendable (_ read: Int, _ all: Int) -> Void = { _, _ in },
        done: @escaping @Sendable () -> Void = {},
        tell: @escaping @Sendable (String) -> Void = { _ in }
    ) {
        self.use = use
        folder = use == .never ? nil : IndexFolder.ofUser()
        notes = DirectoryIndex.Notes(progress: progress, done: done, tell: tell)
    }

    /// The reader of a directory. The same path has the same index as long as this object lives.
    package func reader(_ path: String) -> ReportReader { ReportReader(path: path, index: index(of: path)) }

    /// The report directories at or below a path.
    package func tree(_ path: String) -> ReportTree { ReportTree(path) { try? self.index(of: $0).listing() } }

    private func index(of path: String) -> DirectoryIndex {
        known.withLock { known in
            if let index = known[path] { return index }
            let index = DirectoryIndex(path: path, use: use, folder: folder, notes: notes)
            known[path] = index
            return index
        }
    }
}
