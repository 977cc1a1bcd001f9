import Glibc
package import StallReading
import StallReports
import Synchronization

/// A report directory, read through an index of its outlines: unchanged reports that were read before are not read again. Reports
/// that are not in the index, or have changed, are read from the directory.
///
/// A report is identified by its name and its file's inode number (inode(7)), which the directory lists. A changed report is a
/// new file with another inode number. In addition, each pass checks the status of some files: the newest ones, and others that
/// are chosen at random.
final class DirectoryIndex: OutlineIndex, Sendable {
    /// A directory with at least this many reports is large. Reading fewer takes no noticeable time.
    static let large = 2000
    /// The number of files whose status each pass checks: the newest, and others.
    static let looks = (newest: 4096, others: 16384)

    private let path: String
    private let use: IndexedReports.Use
    private let folder: IndexFolder?
    private let notes: Notes
    private let memory = Mutex(Memory())

    private struct Memory {
        var listing: DirectoryListing?
        var store: IndexStore?
        var hasFailed = false
        var outlines: (stamp: DirectoryStamp, all: [StallOutline])?
    }

    /// Messages to the user.
    struct Notes: Sendable {
        /// While an index is made: how many reports were read, and how many there are.
        var progress: @Sendable (_ read: Int, _ of: Int) -> Void = { _, _ in }
        /// No index is being made any more.
        var done: @Sendable () -> Void = {}
        /// One sentence.
        var tell: @Sendable (String) -> Void = { _ in }
        private let refusals = Refusals()

        private final class Refusals: Sendable {
            let reasons = Mutex(Set<String>())
        }

        /// Says why an index cannot be used. Each reason once: a full disk is that of the other directories' indexes, too.
        func refuse(_ directory: String, _ reason: String) {
            guard refusals.reasons.withLock({ $0.insert(reason).inserted }) else { return }
            tell("the index of \(directory), and perhaps others, cannot be used now (\(reason)); everything is read")
        }
    }

    init(path: String, use: IndexedReports.Use, folder: IndexFolder?, notes: Notes) {
        (self.path, self.use, self.folder, self.notes) = (path, use, folder, notes)
    }

    func listing() throws(ReportError) -> DirectoryListing {
        let stamp = try DirectoryStamp(path: path)
        let known = memory.withLock { memory in
            if let listing = memory.listing, listing.isCertain, listing.stamp == stamp {
                return listing as DirectoryListing?
            }
            open(&memory, creates: false)
            guard let listing = memory.store?.listing(stamp) else { return nil }
            // A report may have been replaced in the same tick of the clock, without another version of the directory.
            (memory.listing, memory.outlines) = (listing, nil)
            return listing
        }
        if let known { return known }
        let listing = try DirectoryListing(path: path)
        memory.withLock { ($0.listing, $0.outlines) = (listing, nil) }
        return listing
    }

    func outlines() -> [StallOutline] {
        memory.withLock { memory in
            if let known = memory.outlines, known.stamp == memory.listing?.stamp { return known.all }
            let all = begin(&memory)
            if let stamp = memory.listing?.stamp { memory.outlines = (stamp, all) }
            return all
        }
    }

    func takeOutlines() -> [StallOutline] {
        memory.withLock { memory in
            memory.outlines = nil
            return begin(&memory)
        }
    }

    private func begin(_ memory: inout Memory) -> [StallOutline] {
        guard let listing = memory.listing else { return [] }
        open(&memory, creates: wantsIndex(of: listing))
        return memory.store?.begin(listing, path) ?? []
    }

    func add(_ read: [ReadOutline], of count: Int) {
        memory.withLock { memory in
            guard let listing = memory.listing, let store = memory.store else { return }
            memory.outlines = nil
            store.add(read, of: count)
            guard count >= Self.large / 2 else { return }
            notes.progress(min(store.knownCount, listing.stalls.count), listing.stalls.count)
        }
    }

    func finish() {
        memory.withLock { $0.store?.finish() }
        notes.done()
    }

    private func wantsIndex(of listing: DirectoryListing) -> Bool {
        switch use {
        case .never: false
        case .ifLarge: listing.stalls.count >= Self.large
        case .always: true
        }
    }

    /// Opens the index, once.
    ///
    /// - Parameter creates: Whether a missing one is created.
    private func open(_ memory: inout Memory, creates: Bool) {
        guard use != .never, memory.store == nil, !memory.hasFailed, let folder else { return }
        let resolved = ReportTree.resolved(path)
        let file = folder.file(of: resolved)
        if unsafe access(file, F_OK) != 0 {
            guard creates else { return }
            folder.tidy()
        }
        memory.store = IndexStore(file: file, directory: resolved, notes)
        memory.hasFailed = memory.store == nil
    }
}

/// Checks whether some files are still as known: the newest, and some others in each pass.
struct FileLook {
    private let files: ReportFiles?
    private let newest: Int
    private let others: Range<Int>

    init(_ path: String, _ count: Int) {
        files = try? ReportFiles(path: path)
        newest = count - DirectoryIndex.looks.newest
        // In a directory that is not much larger, all of them are checked.
        others =
            count <= DirectoryIndex.looks.others ? 0..<count : Self.others(from: Int.random(in: Self.starts(count)))
    }

    /// Where the others begin. Also before the first file: otherwise the oldest would hardly ever be among them.
    static func starts(_ count: Int) -> Range<Int> { 1 - DirectoryIndex.looks.others..<count }

    static func others(from start: Int) -> Range<Int> { start..<start + DirectoryIndex.looks.others }

    func confirms(_ key: Segment.Key, at index: Int, isAsked: Bool) -> Bool {
        guard isAsked || index >= newest || others.contains(index) else { return true }
        return files?.version(of: key.id).map { FileKey($0) } == key.file
    }
}

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
