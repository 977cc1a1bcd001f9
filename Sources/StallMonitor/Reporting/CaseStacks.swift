import RunLoopKit
import StackCapture
import StallDiagnosis
import StallReports
import Symbolication

/// What was captured of a stall so far, with names, and what that shows. Made anew as a whole when there are more samples.
struct CaseStacks {
    /// The one that the report is about. Of a pool, a worker that shows the culprit.
    var thread: StallReport.Thread
    /// Never without a stack: in the place of a missing one stands why it is missing.
    var named: SymbolicatedStacks
    var fingerprint: Fingerprint
    /// A pool's, each by itself.
    var workers: [StallReport.Worker] = []
    /// The samples, with calls that a signal interrupted under the names they have on the stack.
    var samples: [StackSample]
    /// Of taking and naming them.
    var cost: StallReport.MonitorCost

    /// What a thread was found at. Samples that do not say whose they are are those of the only one.
    func waits(of threadID: Int32) -> WaitProfile {
        WaitProfile(samples.filter { $0.threadID.map { $0 == threadID } ?? true }.weighted)
    }
}

extension ReportComposer {
    /// Finds the names for all that was captured, the culprit and the fault.
    func stacks(of stall: StallObservation, _ findings: CaseFindings) -> CaseStacks {
        let samples = findings.tally.samples
        let pool = stall.pool.map(PoolThreads.init) ?? PoolThreads()
        let thread = StallReport.Thread(stall.threadID ?? 0, stall.evidence?.after)
        let clock = ContinuousClock()
        let start = clock.now
        var named = SymbolicatedStacks(
            samples,
            pool: pool,
            companions: companions(of: findings, stall.pool),
            thread: thread,
            clock: stall.clock,
            name: { resolve($0, in: stall.subject) },
            isOwn: { isOwn($0, $1, of: stall) }
        )
        let time = clock.now - start
        let chosen = (named.culpritSample ?? samples.indices.first).flatMap { pool.thread(of: samples[$0]) }
        let fingerprint = Fingerprint.make(
            kind: stall.kind,
            fault: named.culpritFrames,
            modules: named.modules,
            executable: process(of: stall).executable
        )
        if named.stacks.isEmpty { named.stacks = [missingStack(stall, thread)] }
        let locks = [findings.lock].compactMap { $0 } + findings.locks
        var stacks = CaseStacks(
            thread: chosen ?? thread,
            named: named,
            fingerprint: fingerprint,
            samples: samples.map { settled($0, in: stall.subject) },
            cost: .init(samples.map(\.stack.cost) + locks.flatMap(\.costs), naming: time)
        )
        stacks.workers = stall.pool?.workers.map { worker($0, stacks, findings, of: stall) } ?? []
        if let others = stall.others { add(others, to: &stacks.named, of: stall) }
        return stacks
    }

    private func add(_ others: ThreadStacks, to named: inout SymbolicatedStacks, of stall: StallObservation) {
        named.add(
            others,
            at: stall.clock.time(of: stall.othersTakenAt ?? stall.detectedAt),
            name: { resolve($0, in: stall.subject) },
            isOwn: { isOwn($0, $1, of: stall) }
        )
    }

    /// The owners of locks, each once, without a pool's workers, whose stacks are there anyway.
    private func companions(of findings: CaseFindings, _ pool: PoolObservation?) -> [CompanionStack] {
        guard let pool else { return findings.lock?.companions ?? [] }
        var known = Set(pool.workers.map(\.job.threadID))
        return findings.locks.flatMap(\.companions).filter { known.insert($0.thread.id).inserted }
    }

    /// With the names that are known without any symbols: the loop's own.
    func resolve(_ addresses: [ResolvableAddress], in subject: OutsideProcess?) -> Resolution {
        if let subject { return subject.symbolicator.resolve(addresses, budget: .tool) }
        var resolution = symbolicator.resolve(addresses)
        for (index, frame) in resolution.frames.enumerated() where frame.symbol == nil {
            guard let offset = frame.functionOffset,
                let name = CalloutFrames.name(ofFunctionAt: frame.address &- offset)
            else { continue }
            resolution.frames[index].symbol = name
            (resolution.frames[index].function, resolution.frames[index].language) = (name, .c)
        }
        return resolution
    }

    private func isOwn(_ frame: SymbolicatedFrame, _ module: LoadedModule?, of stall: StallObservation) -> Bool {
        let executable = process(of: stall).executable ?? ""
        if stall.subject != nil { return ownCode.isOwnOfAnyMake(frame, module: module, executable: executable) }
        return ownCode.isOwn(frame, module: module, executable: executable)
    }

    private func missingStack(_ stall: StallObservation, _ thread: StallReport.Thread) -> StallReport.Stack {
        let reason =
            switch stall.stack {
            case .captured: "The stack was empty."
            case .failed(let error): error.description
            case .raced: "The stall was over before it was looked at: the loop had moved on."
            case .unavailable(let reason): reason
            }
        let time = stall.clock.time(of: stall.detectedAt)
        return .init(thread: thread, capturedAt: time, complete: false, error: reason)
    }

    /// A sample whose call goes by the name that it has on the stack, if a signal had interrupted it.
    private func settled(_ sample: StackSample, in subject: OutsideProcess?) -> StackSample {
        guard let site = sample.site, !site.continued.isEmpty else { return sample }
        var sample = sample
        let innermost = sample.stack.frames.prefix(3).map {
            ResolvableAddress(address: $0.address, isReturnAddress: $0.found != .register)
        }
        let names = (subject?.symbolicator ?? symbolicator).resolve(innermost)
        sample.site = site.settled(by: names.frames.compactMap(\.symbol))
        return sample
    }
}

extension StallReport.MonitorCost {
    fileprivate init(_ costs: [CapturedStack.Cost], naming: Duration) {
        self.init(
            heldNs: Int64(clamping: costs.reduce(0) { $0 + $1.heldNanoseconds }),
            unwindNs: Int64(clamping: costs.reduce(0) { $0 + $1.unwindNanoseconds }),
            symbolicationNs: naming.nanoseconds,
            copiedBytes: Int64(clamping: costs.reduce(0) { $0 + $1.bytesCopied })
        )
    }
}
