import Dispatch
import Glibc
package import StallReports
import Synchronization

/// The list data of a directory's finished reports, read before and kept elsewhere. For one pass at a time.
package protocol OutlineIndex: Sendable {
    /// The names in the directory as of now.
    func listing() throws(ReportError) -> DirectoryListing
    /// The list data of those reports in the last listing that have not changed since they were read, in order of their ids.
    func outlines() -> [StallOutline]
    /// The same, but they are not kept for the next call.
    func takeOutlines() -> [StallOutline]
    /// Adds outlines that were not known. Within one pass, ids only grow.
    ///
    /// - Parameter count: The number of reports read, including those whose list data cannot be kept.
    func add(_ read: [ReadOutline], of count: Int)
    /// Notes that the pass has read everything in the listing.
    func finish()
}

/// The list data of a report, just read.
package struct ReadOutline: Sendable {
    package var outline: StallOutline
    /// The version of the file from which it was read. Nil if the outline depends on more than this file: on whether a process
    /// lives.
    package var version: FileStatus?
}

extension ReportCatalog {
    /// The number of reports that are read before the first of them is passed on.
    private static let batch = 8192
    /// The number of reports for which a thread is worthwhile.
    private static let reportsPerThread = 500
    /// More threads would wait for the directory's lock in the kernel.
    private static let mostThreads = 8

    /// The list data of each report, oldest first, some thousand in memory at a time.
    ///
    /// - Returns: The errors of reports that could not be read, without reports that were removed for newer ones in the
    ///   meantime.
    package func forEachOutline(_ body: (StallOutline) -> Void) throws(ReportError) -> [ReportError] {
        var known = reader.index?.outlines() ?? []
        let unread = unread(besides: known)
        // Names may have been removed since the index looked.
        if known.count + unread.count > stalls.count { known.removeAll { !stalls.hasSorted($0.id) } }
        var failures: [ReportError] = []
        var pool = OutlinePool()
        var next = 0
        for start in stride(from: 0, to: unread.count, by: Self.batch) {
            for read in try outlines(of: Array(unread[start...].prefix(Self.batch)), &pool, &failures) {
                while next < known.count, known[next].id < read.outline.id {
                    body(known[next])
                    next += 1
                }
                body(read.outline)
            }
        }
        for index in next..<known.count { body(known[index]) }
        reader.index?.finish()
        return failures
    }

    /// The list data of all stalls, oldest first, and the errors of reports that could not be read.
    func allOutlines() throws(ReportError) -> (stalls: [StallOutline], failures: [ReportError]) {
        var known = reader.index?.takeOutlines() ?? []
        let unread = unread(besides: known)
        let before = known.count
        known.reserveCapacity(stalls.count)
        var failures: [ReportError] = []
        var pool = OutlinePool()
        for start in stride(from: 0, to: unread.count, by: Self.batch) {
            for read in try outlines(of: Array(unread[start...].prefix(Self.batch)), &pool, &failures) {
                known.append(read.outline)
            }
        }
        reader.index?.finish()
        // Names may have been removed since the index looked.
        if before + unread.count > stalls.count { known.removeAll { !stalls.hasSorted($0.id) } }
        if before > 0, !unread.isEmpty { known.sort { $0.id < $1.id } }
        return (known, failures)
    }

    /// The stalls that must be read.
    ///
    /// - Parameter known: Sorted by their ids.
    private func unread(besides known: [StallOutline]) -> [ULID] {
        // The same array, and not a copy.
        if known.isEmpty { return stalls }
        var next = 0
        return stalls.filter { id in
            while next < known.count, known[next].id < id { next += 1 }
            return next == known.count || known[next].id != id
        }
    }

    /// Reads some reports, concurrently if there are many.
    private func outlines(
        of ids: [ULID],
        _ pool: inout OutlinePool,
        _ failures: inout [ReportError]
    ) throws(ReportError) -> [ReadOutline] {
        let processors = Int(clamping: sysconf(Int32(_SC_NPROCESSORS_ONLN)))
        let count = max(1, min(ids.count / Self.reportsPerThread, Self.mostThreads, processors))
        let parts = Mutex([Result<Part, ReportError>](repeating: .success(Part()), count: count))
        DispatchQueue.concurrentPerform(iterations: count) { number in
            let range = ids.count * number / count..<ids.count * (number + 1) / count
            let part = Result { () throws(ReportError) in try self.part(ids[range]) }
            parts.withLock { $0[number] = part }
        }
        var read: [ReadOutline] = []
        for part in parts.withLock({ $0 }) {
            let part = try part.get()
            read += part.read.map { ReadOutline(outline: pool.shared($0.outline), version: $0.version) }
            failures += part.failures
        }
        reader.index?.add(read, of: ids.count)
        return read
    }

    private struct Part {
        var read: [ReadOutline] = []
        var failures: [ReportError] = []
    }

    private func part(_ ids: ArraySlice<ULID>) throws(ReportError) -> Part {
        let directory = try OpenDirectory(path: reader.path)
        var part = Part()
        for id in ids {
            do throws(ReportError) {
                part.read.append(try readOutline(id, in: directory))
            } catch {
                if error.code != .missingFile { part.failures.append(error) }
            }
        }
        return part
    }
}

extension [ULID] {
    /// Whether the id is among these sorted ids.
    package func hasSorted(_ id: ULID) -> Bool { sortedIndex(of: id) != nil }

    /// The index of the id among these sorted ids.
    package func sortedIndex(of id: ULID) -> Int? {
        let index = firstSorted(notBefore: id)
        return index < count && self[index] == id ? index : nil
    }

    /// The index of the first id that is not less. The ids must be sorted.
    package func firstSorted(notBefore id: ULID) -> Int {
        var (low, high) = (0, count)
        while low < high {
            let middle = low + (high - low) / 2
            if self[middle] < id { low = middle + 1 } else { high = middle }
        }
        return low
    }
}

/// Looks at the files of reports, without reading them. For one thread at a time.
package final class ReportFiles {
    private let directory: OpenDirectory

    package init(path: String) throws(ReportError) { directory = try OpenDirectory(path: path) }

    /// The file's present version. Nil if there is no file.
    package func version(of stall: ULID) -> FileStatus? {
        directory.status(of: ReportFileName(.stall, stall).description)
    }
}

extension DirectoryListing {
    /// Adds stalls.
    package mutating func add(_ stalls: [ULID], _ inodes: [UInt64]) {
        guard !stalls.isEmpty else { return }
        self.stalls += stalls
        self.inodes += inodes
        sortStalls()
    }
}
