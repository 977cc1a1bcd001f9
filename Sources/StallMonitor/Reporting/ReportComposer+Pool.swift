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

    /// What a worker stood at, by itself.
    func worker(
        _ worker: PoolObservation.Worker,
        _ stacks: CaseStacks,
        _ findings: CaseFindings,
        of stall: StallObservation
    ) -> StallReport.Worker {
        let id = worker.job.threadID
        let own = stacks.samples.indices.filter { stacks.samples[$0].threadID == id }
        let state = worker.evidence?.after
        let diagnosis = Diagnosis(window: worker.evidence, state: state?.state, waits: stacks.waits(of: id))
        let place = own.first.flatMap { stacks.named.places[$0] }
        var row = StallReport.Worker(
            thread: .init(id, state),
            standingNs: 0,
            task: own.first.flatMap { stacks.samples[$0].stack.asyncCallers?.taskNumber }.map(UInt64.init),
            verdict: diagnosis.verdict,
            stack: place,
            // One that was not to be had at detection may have been taken before.
            error: place == nil ? worker.problem : nil
        )
        if let lock = findings.locks.first(where: { $0.waits.first?.threadID == id }) {
            let summary = LockSummary(lock, stacks.named.stacks, processID: process(of: stall).pid)
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
    /// All workers have stood until `end`: with the first of them the stall ends.
    init(_ pool: PoolObservation, _ workers: [StallReport.Worker], until end: MonotonicInstant) {
        self.init(width: pool.width, running: pool.running, waiting: pool.waiting, workers: workers)
        for (index, worker) in pool.workers.enumerated() where workers.indices.contains(index) {
            self.workers[index].standingNs = max(.zero, end - worker.job.since).nanoseconds
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
        return "One job stood at this, while \(rest)."
    }

    private var sentence: String {
        var text = "No worker was free: \(running) stood in one job each"
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
}

extension StallReport {
    /// What there is to say of all of a pool's workers. Nil without a pool.
    var poolSentence: String? { pool?.sentence(kind) }
}
