import ArgumentParser
import StallIndex
import StallReading
import StallReports
import Synchronization

/// Report directories that are read as one. A directory that cannot be read does not hide the others.
struct ReportSources: Hashable {
    /// Without duplicates.
    let paths: [String]
    /// Subdirectories that could not be read: reports may be missing.
    let hidden: [ReportError]

    /// Finds each path and the directories below it that contain reports.
    init(_ paths: [String]) {
        var known: Set<String> = []
        let trees = paths.map { ReportIndexes.shared.tree($0) }
        self.paths = trees.flatMap(\.directories).filter { known.insert(ReportTree.resolved($0)).inserted }
        hidden = trees.flatMap(\.failures)
    }

    /// The same; a collector's address is replaced by a copy of its matching reports.
    init(_ paths: [String], covering selections: [StallSelection]) throws {
        self.init(
            try paths.map { path in
                CollectorCopy.isAddress(path) ? try CollectorCopy.make(of: path, covering: selections) : path
            }
        )
    }

    /// The contents of all directories, oldest first. Throws if there is only one and it cannot be read.
    func overview() throws(ReportError) -> ReportReader.Overview {
        var sum = ReportReader.Overview()
        if paths.count == 1 {
            sum = try ReportIndexes.shared.reader(paths[0]).overview()
            sum.failures += hidden
            return sum
        }
        sum.failures = hidden
        for path in paths {
            do throws(ReportError) {
                sum.add(try ReportIndexes.shared.reader(path).overview())
            } catch {
                sum.failures.append(error)
            }
        }
        sum.stalls = sum.stalls.sortedAndOnce(by: \.id)
        sum.runs = sum.runs.sortedAndOnce(by: \.id)
        return sum
    }

    /// The file names in all directories. Throws if there is only one and it cannot be read.
    func catalogs() throws(ReportError) -> Catalogs {
        if paths.count == 1 { return Catalogs([try ReportIndexes.shared.reader(paths[0]).catalog()], hidden) }
        var (found, failures): ([ReportCatalog], [ReportError]) = ([], hidden)
        for path in paths {
            do throws(ReportError) { found.append(try ReportIndexes.shared.reader(path).catalog()) } catch {
                failures.append(error)
            }
        }
        return Catalogs(found, failures)
    }

    /// Prints what could not be read. The exit code is 1 if there is any.
    static func report(_ failures: [ReportError]) throws {
        Output.note(failures)
        if !failures.isEmpty { throw ExitCode.failure }
    }
}

/// The stalls in the directories, by file name.
struct Catalogs {
    let all: [ReportCatalog]
    /// Oldest first, without duplicates.
    let stalls: [ULID]
    let failures: [ReportError]

    init(_ all: [ReportCatalog], _ failures: [ReportError]) {
        self.all = all
        stalls = all.count == 1 ? all[0].stalls : all.flatMap(\.stalls).sortedAndOnce(by: \.self)
        self.failures = failures + all.flatMap(\.failures)
    }

    func report(_ id: ULID) throws(ReportError) -> StallReport {
        guard let catalog = catalog(of: id) else { throw ReportError(.missingFile) }
        return try catalog.report(id)
    }

    /// Nil if it cannot be read, which is added to the failures, or was deleted meanwhile to make room for a newer one.
    func report(_ id: ULID, _ failures: inout [ReportError]) -> StallReport? {
        do throws(ReportError) {
            return try report(id)
        } catch {
            if error.code != .missingFile { failures.append(error) }
            return nil
        }
    }

    func outline(_ id: ULID) throws(ReportError) -> StallOutline {
        guard let catalog = catalog(of: id) else { throw ReportError(.missingFile) }
        return try catalog.outline(id)
    }

    /// The run records of all directories, oldest first, without duplicates; and what could not be read.
    func runs() -> (runs: [RunRecord], failures: [ReportError]) {
        var (runs, failures): ([RunRecord], [ReportError]) = ([], [])
        for catalog in all {
            do throws(ReportError) {
                let found = try catalog.allRuns()
                runs += found.runs
                failures += found.failures
            } catch {
                failures.append(error)
            }
        }
        return (runs.sortedAndOnce(by: \.id), failures)
    }

    /// Aliases of faults. Nil if the selection names no fault: finding aliases means reading every report.
    func faultNames(for selection: StallSelection) -> FaultNames? {
        guard !selection.fingerprints.isEmpty else { return nil }
        var pairs: [(Fingerprint, [Fingerprint])] = []
        for catalog in all {
            _ = try? catalog.forEachOutline { stall in
                if let aliases = stall.aliases { pairs.append((stall.fingerprint, aliases)) }
            }
        }
        return FaultNames(pairs: pairs)
    }

    /// The outlines of stalls that match. Other reports are not read completely.
    ///
    /// - Parameter failures: The errors of reports that cannot be read are appended.
    func stalls(
        of selection: StallSelection,
        names: FaultNames?,
        _ failures: inout [ReportError]
    ) throws(ReportError) -> [ULID] {
        guard !selection.isEverything else { return stalls }
        var (found, filter): (Set<ULID>, StallFilter) = ([], StallFilter(selection, names: names))
        for catalog in all {
            failures += try catalog.forEachOutline { stall in
                if filter.includes(stall) { found.insert(stall.id) }
            }
        }
        return found.sorted()
    }

    /// The note if no stall matches.
    func nothingFound(by selection: StallSelection, names: FaultNames?) -> String {
        selection.nothingFound(among: stalls.count, runs().runs, names: names)
    }

    func repeats(of report: StallReport) -> StallReport.Repeats? { catalog(of: report.id)?.repeats(of: report) }

    /// Returns an optional instead of throwing: Swift 6.2's optimiser miscompiles a typed error that passes through two calls.
    private func catalog(of id: ULID) -> ReportCatalog? { all.first { $0.stalls.hasSorted(id) } }
}

extension Array {
    /// Sorted, and only the first element of each key: a copied report is the same stall.
    fileprivate func sortedAndOnce<Key: Comparable & Hashable>(by key: (Element) -> Key) -> [Element] {
        var known: Set<Key> = []
        return filter { known.insert(key($0)).inserted }.sorted { key($0) < key($1) }
    }
}

extension ReportSources {
    /// The state of the processes of all directories. Throws if there is only one directory and it cannot be read.
    func snapshot(_ failures: inout [ReportError]) throws(ReportError) -> LiveSnapshot {
        failures += hidden
        var sum: LiveSnapshot?
        var last = ReportError(.missingDirectory)
        for path in paths {
            do throws(ReportError) {
                let next = try LiveSnapshot(ReportIndexes.shared.reader(path), failures: &failures)
                if sum == nil { sum = next } else { sum?.add(next) }
            } catch {
                last = error
                if paths.count > 1 { failures.append(error) }
            }
        }
        guard let sum else { throw last }
        return sum
    }

    /// The matching part of it, also by former fingerprints of faults, as other commands choose.
    ///
    /// - Parameter names: Returns aliases of the faults in these directories. Nil: they are read now.
    func snapshot(
        of selection: StallSelection,
        names: ((Catalogs) -> FaultNames?)? = nil,
        _ failures: inout [ReportError]
    ) throws(ReportError) -> LiveSnapshot {
        let whole = try snapshot(&failures)
        // What cannot be read has been told by the snapshot.
        let catalogs = selection.fingerprints.isEmpty ? nil : try? catalogs()
        return whole.chosen(by: selection, names: catalogs.flatMap(names ?? { $0.faultNames(for: selection) }))
    }
}

extension LiveSnapshot {
    /// The matching processes with their matching stalls. A stall whose report is not written yet is kept.
    ///
    /// - Parameter names: Aliases of faults. Without them only a stall's own aliases are used.
    func chosen(by selection: StallSelection, names: FaultNames? = nil) -> LiveSnapshot {
        guard !selection.isEverything else { return self }
        var chosen = self
        chosen.processes = processes.filter { row in
            // A watcher's own name is not that of what it watches.
            if let watcher = row.watcher { return selection.includes(processesOf: watcher) }
            let writer = row.record.writer
            return selection.includes(
                service: writer.service?.name,
                release: writer.service?.version,
                host: writer.host.name
            )
        }
        for index in chosen.processes.indices {
            chosen.processes[index].stalls.removeAll { stall in
                stall.outline.map { !selection.includes($0, names: names) } ?? false
            }
        }
        return chosen
    }
}

/// The indexes through which this process reads large directories.
enum ReportIndexes {
    private static let wanted = Mutex(IndexedReports.Use.ifLarge)
    /// Nil if nothing may be shown.
    private static let line = Mutex(TransientLine?.some(TransientLine()))

    /// Call this before anything is read.
    static func use(_ use: IndexedReports.Use) { wanted.withLock { $0 = use } }

    /// For a command that draws on the whole screen.
    static func beQuiet() { line.withLock { $0 = nil } }

    static let shared = IndexedReports(
        use: wanted.withLock { $0 },
        progress: { read, all in
            line.withLock { $0?.show("reading \(read) of \(all) reports; the next time only what is new") }
        },
        done: { line.withLock { $0?.clear() } },
        tell: { text in
            line.withLock { line in
                guard line != nil else { return }
                line?.clear()
                Output.note(text)
            }
        }
    )
}
