import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports
import Symbolication

// What a report tells of a pool: each worker by itself, and all of them in one sentence.

extension ReportComposer {
    /// The first own function of those in which a job began, or that awaited that; else the first that is not the runtime's. Nil without one: a
    /// task that has just been made begins in a function of the runtime's, which calls what the server wrote.
    func nameOfJob(at addresses: [UInt]) -> String? {
        let found = resolve(addresses.map { ResolvableAddress(address: $0, kind: .resumption) }, in: nil)
        let named = found.frames.filter { $0.function ?? $0.symbol != nil }
        let module = { (frame: SymbolicatedFrame) in
            frame.moduleIndex.flatMap { found.modules.indices.contains($0) ? found.modules[$0] : nil }
        }
        let own = named.first { ownCode.isOwn($0, module: module($0), executable: run.process.executable ?? "") }
        let other = named.first { module($0)?.path.contains("/libswift_Concurrency") != true }
        return (own ?? other).flatMap { $0.symbol.map(Demangler.shortName) ?? $0.function }
    }

    /// Tells of the workers one by one, and takes the one that shows the culprit for the thread that the report is about.
    func tellWorkers(
        of pool: PoolObservation,
        _ findings: CaseFindings,
        _ book: SymbolicatedStacks,
        _ crew: Crew,
        in report: inout StallReport
    ) {
        let samples = findings.tally.samples
        if let chosen = book.culpritSample ?? samples.indices.first, let thread = crew.thread(of: samples[chosen]) {
            report.thread = thread
        }
        report.pool = StallReport.Pool(
            width: pool.width,
            running: pool.running,
            waiting: pool.waiting,
            workers: pool.workers.map { worker($0, findings, book, report) }
        )
        let atCulprit = report.workersAtCulprit
        report.pool?.atCulprit = atCulprit
    }

    private func worker(
        _ worker: PoolObservation.Worker,
        _ findings: CaseFindings,
        _ book: SymbolicatedStacks,
        _ report: StallReport
    ) -> StallReport.Worker {
        let id = worker.job.threadID
        let all = findings.tally.samples
        let own = all.indices.filter { all[$0].threadID == id }
        let state = worker.evidence?.after
        let diagnosis = Diagnosis(window: worker.evidence, state: state?.state, waits: waits(of: own.map { all[$0] }))
        let place = own.first.flatMap { book.places[$0] }
        var row = StallReport.Worker(
            thread: .init(id: id, name: state?.name, state: state.map { String($0.state) }),
            standingNs: 0,
            task: own.first.flatMap { all[$0].stack.asyncCallers?.taskNumber }.map(UInt64.init),
            verdict: diagnosis.verdict,
            stack: place,
            // One that was not to be had at detection may have been taken before.
            error: place == nil ? worker.problem : nil
        )
        if let lock = findings.locks.first(where: { $0.waits.first?.threadID == id }) {
            let summary = LockSummary(lock, book.stacks, processID: report.process.pid)
            row.lock = summary.waits.first?.lock
            if !summary.cycle.isEmpty { row.verdict = .deadlock }
        }
        return row
    }
}

extension PoolObservation {
    /// The kernel's account of a worker.
    func evidence(of threadID: Int32) -> EvidenceWindow? { workers.first { $0.job.threadID == threadID }?.evidence }
}

extension StallReport.Pool {
    /// All workers have stood until then: with the first of them the stall ends.
    mutating func extend(_ pool: PoolObservation, until end: MonotonicInstant) {
        for (index, worker) in pool.workers.enumerated() where workers.indices.contains(index) {
            workers[index].standingNs = max(.zero, end - worker.job.since).nanoseconds
        }
    }

    /// `No worker was free: 4 stood in one job each, 3 of them at this, while at least 12 jobs waited.`
    /// Of one long job: `1 job stood at this, while 1 of 2 workers was free.`
    fileprivate func sentence(_ kind: StallKind) -> String {
        guard kind == .longJob else { return sentence }
        let free = max(0, width.subtractingReportingOverflow(running).partialValue)
        let rest =
            free == 0
            ? "none of the \(width) workers was free" : "\(free) of \(width) workers \(free == 1 ? "was" : "were") free"
        return "\(Self.openingOfJob)at this, while \(rest)."
    }

    private var sentence: String {
        var text = "\(Self.opening)\(running) stood in one job each"
        if let atCulprit, running > 1, atCulprit > 0 {
            text += atCulprit >= running ? ", all of them at this" : ", \(atCulprit) of them at this"
        }
        switch waiting {
        case nil: break
        case 0: text += ", and no other job waited"
        case 1: text += ", while at least 1 job waited"
        case let count?: text += ", while at least \(count) jobs waited"
        }
        return text + "."
    }

    fileprivate static let opening = "No worker was free: "
    fileprivate static let openingOfJob = "One job stood "
}

extension StallReport {
    /// Puts the workers before what is said of one of them. Last of all, and as often as that is said anew.
    mutating func tellPool() {
        cause.summary = toldOfPool(cause.summary)
    }

    /// A sentence about one of the workers with what there is to say of all of them, as of now, before it.
    func toldOfPool(_ summary: String) -> String {
        guard var pool else { return summary }
        pool.atCulprit = workersAtCulprit
        var rest = summary[...]
        if [Pool.opening, Pool.openingOfJob].contains(where: rest.hasPrefix) {
            rest = rest.firstRange(of: ". ").map { rest[$0.upperBound...] } ?? ""
        }
        let sentence = pool.sentence(kind)
        return rest.isEmpty ? sentence : sentence + " " + rest
    }
}
