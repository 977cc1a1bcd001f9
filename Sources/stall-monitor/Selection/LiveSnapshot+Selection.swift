import StallReports

extension ReportSources {
    /// What the processes of all directories are at. Throws where there is but one directory, and it cannot be read.
    func snapshot(_ failures: inout [ReportError]) throws(ReportError) -> LiveSnapshot {
        failures += hidden
        var sum: LiveSnapshot?
        var last = ReportError(.missingDirectory)
        for path in paths {
            do throws(ReportError) {
                let next = try LiveSnapshot(ReportReader(path: path), failures: &failures)
                if sum == nil { sum = next } else { sum?.add(next) }
            } catch {
                last = error
                if paths.count > 1 { failures.append(error) }
            }
        }
        guard let sum else { throw last }
        return sum
    }
}

extension LiveSnapshot {
    /// The processes that are wanted, and of their stalls those that are. A stall whose report is not written yet is kept.
    func chosen(by selection: StallSelection) -> LiveSnapshot {
        guard !selection.isEverything else { return self }
        var chosen = self
        chosen.processes = processes.filter { row in
            let writer = row.record.writer
            return selection.includes(
                service: writer.service?.name,
                release: writer.service?.version,
                host: writer.host.name
            )
        }
        for index in chosen.processes.indices {
            chosen.processes[index].stalls.removeAll { $0.outline.map { !selection.includes($0) } ?? false }
        }
        return chosen
    }
}
