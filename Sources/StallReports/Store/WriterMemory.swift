/// What a writer remembers about its directory between writes, so that a write costs the same however many reports of other
/// processes are in it. Empty for a writer that writes once. At most about a megabyte. A value type, for one thread at a time.
package struct WriterMemory: Sendable {
    /// The files that the run has written and that still exist: they are removed last.
    package var own: Set<ReportFileName>
    var lastingOwn = LastingFiles()
    var lastingOthers = LastingFiles()

    package init(own: Set<ReportFileName> = []) { self.own = own }
}

/// Files that were read in order to apply the limits, and must stay: ongoing stalls, running processes' run records, files that
/// cannot be removed.
///
/// A file that was not written again still has to stay, unless its process has died in the meantime. So a few of these are read
/// again at each write, in rotation.
struct LastingFiles: Sendable {
    /// The number of files that are remembered. Further files are only read in rotation, like those that are known.
    static let capacity = 4096
    /// The number of files that are read again at a write: of those written in the meantime, and of the others, each.
    static let readAgain = 16

    enum ReadState: Hashable, Sendable {
        /// Was never read.
        case new
        /// Was written again since it was read.
        case changed
        /// Unchanged, or beyond the number that can be remembered.
        case known
    }

    private var versions: [ReportFileName: FileStatus] = [:]
    private var turn = 0

    /// The number of remembered files.
    var count: Int { versions.count }

    func readState(of name: ReportFileName, _ version: FileStatus) -> ReadState {
        guard let known = versions[name] else { return versions.count < Self.capacity ? .new : .known }
        return known == version ? .known : .changed
    }

    mutating func remember(_ name: ReportFileName, _ version: FileStatus) {
        guard versions[name] != nil || versions.count < Self.capacity else { return }
        versions[name] = version
    }

    mutating func forget(_ name: ReportFileName) { versions[name] = nil }

    /// Keeps only files that still exist.
    mutating func forgetAll(but names: Set<ReportFileName>) {
        versions = versions.filter { names.contains($0.key) }
    }

    /// The known files whose turn it is.
    mutating func next(of known: [ReportFileName]) -> Set<ReportFileName> {
        guard !known.isEmpty else { return [] }
        let start = turn % known.count
        let count = min(Self.readAgain, known.count)
        turn = start + count
        return Set((start..<start + count).map { known[$0 % known.count] })
    }
}
