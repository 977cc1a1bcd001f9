import Glibc
import StallReports
import Synchronization

/// A report directory, read through an index of its outlines: reports that were read before and have not changed are not read
/// again. What is not in the index, or has changed, is read from the directory as without an index.
///
/// A report is known by its name and its file's number (inode(7)), which the directory itself tells. A report is replaced by a
/// new file, which has another number. Beyond that some files are looked at in each pass: the newest, and others in turn.
final class DirectoryIndex: OutlineIndex, Sendable {
    /// From so many reports on a directory is large. Reading fewer takes no time that anyone would notice.
    static let large = 2000
    /// The number of files that are looked at in each pass: the newest, and others.
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

    /// What a person is told.
    struct Notes: Sendable {
        /// How many of how many reports were read, while an index is made.
        var progress: @Sendable (_ read: Int, _ of: Int) -> Void = { _, _ in }
        /// Nothing is being made any more.
        var done: @Sendable () -> Void = {}
        /// A sentence.
        var tell: @Sendable (String) -> Void = { _ in }
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
            memory.listing = listing
            return listing
        }
        if let known { return known }
        let listing = try DirectoryListing(path: path)
        memory.withLock { $0.listing = listing }
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
