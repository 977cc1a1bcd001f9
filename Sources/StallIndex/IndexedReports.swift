package import StallReading
import StallReports
import Synchronization

/// Gives a command access to report directories, through an index where that is faster.
///
/// An index never changes the result. It can be deleted at any time.
public final class IndexedReports: Sendable {
    /// Whether directories get indexes.
    public enum Use: Hashable, Sendable {
        case never
        /// Directories with 2000 reports or more.
        case ifLarge
        case always
    }

    private let use: Use
    private let folder: IndexFolder?
    private let notes: DirectoryIndex.Notes
    private let known = Mutex([String: DirectoryIndex]())

    /// - Parameters:
    ///   - progress: Called while an index is made, with the number of reports read and the number of all. On any thread.
    ///   - done: Called when no index is being made any more. On any thread.
    ///   - tell: Called with a sentence about an index that cannot be used. On any thread.
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

    /// The reader of a directory. The same path gets the same index while this object lives.
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
