extension ReportDirectory {
    /// Writes down what readers already say: stalls and runs whose process died are `terminated`. For a monitor's start, after
    /// ``prepare()``.
    ///
    /// Returns the stalls closed. Files that cannot be read stay as they are.
    @discardableResult
    public func closeTerminated(liveness: ProcessLiveness = ProcessLiveness()) throws(ReportError) -> [StallReport] {
        // As they stand in the files: a reader that could see would have closed them already.
        let contents = try ReportReader(path: path, liveness: .blind).contents()
        let reports = contents.reports.compactMap { $0.closed(by: liveness) }
        for report in reports { try write(report) }
        for run in contents.runs { if let closed = run.closed(by: liveness) { try write(closed) } }
        return reports
    }
}
