/// What a writer remembers of its directory from one write to the next, so that a write costs the same however many reports of other
/// processes stand in it. Empty for a writer that writes once. At most about a megabyte. A value; for one thread at a time.
package struct WriterMemory: Sendable {
    /// What the run has written, as far as it is still there: it goes last.
    package var own: Set<ReportFileName>
    var lastingOwn = LastingFiles()
    var lastingOthers = LastingFiles()

    package init(own: Set<ReportFileName> = []) { self.own = own }
}

/// Files that were read for the sake of the limits, and must stay: stalls that last, runs that live, what cannot be removed.
///
/// One that was not written again lasts still, unless its process has died meanwhile. So of these a few are read again at each write,
/// each in its turn.
struct LastingFiles: Sendable {
    /// So many are remembered. More are read in their turn only, as those that are known.
    static let capacity = 4096
    /// So many are read again at a write: of those that were written meanwhile, and of the others, each.
    static let readAgain = 16

    enum Standing: Hashable, Sendable {
        /// Never read.
        case new
        /// Written again since it was read.
        case changed
        /// As it was, or one more than can be remembered.
        case known
    }

    private var versions: [ReportFileName: FileStatus] = [:]
    private var turn = 0

    /// How many are remembered.
    var count: Int { versions.count }

    func standing(of name: ReportFileName, _ version: FileStatus) -> Standing {
        guard let known = versions[name] else { return versions.count < Self.capacity ? .new : .known }
        return known == version ? .known : .changed
    }

    mutating func remember(_ name: ReportFileName, _ version: FileStatus) {
        guard versions[name] != nil || versions.count < Self.capacity else { return }
        versions[name] = version
    }

    mutating func forget(_ name: ReportFileName) { versions[name] = nil }

    /// Keeps only what is there still.
    mutating func forgetAll(but names: Set<ReportFileName>) {
        versions = versions.filter { names.contains($0.key) }
    }

    /// Those of the known whose turn it is.
    mutating func next(of known: [ReportFileName]) -> Set<ReportFileName> {
        guard !known.isEmpty else { return [] }
        let start = turn % known.count
        let count = min(Self.readAgain, known.count)
        turn = start + count
        return Set((start..<start + count).map { known[$0 % known.count] })
    }
}
