import Glibc
import StackCapture
import StallReports

/// When to sample.
struct SampleSchedule: Hashable {
    var intervalNs: Int64
    var lengthNs: Int64

    /// The moment of the next sample, and the number of samples that were due before it and before the end.
    ///
    /// - Parameters:
    ///   - last: When the last sample was due.
    ///   - now: When it was finished.
    ///   - end: No sample is due from then on.
    func next(after last: Int64, now: Int64, end: Int64) -> (moment: Int64, missed: Int) {
        let late = max(0, now.subtractingSaturated(last))
        let steps = max(1, late.addingSaturated(intervalNs - 1) / intervalNs)
        let left = max(0, end.subtractingSaturated(last).subtractingSaturated(1)) / intervalNs
        let moment = last.addingSaturated(steps.multipliedSaturated(by: intervalNs))
        return (moment, Int(clamping: min(steps - 1, left)))
    }
}

/// Samples one process, once or repeatedly.
struct SampleRun {
    private let processID: Int32
    private let showsAll: Bool
    private let sampler: ProcessSampler
    private let deadlineNs: Int64
    private let isQuiet: Bool
    private var names: SampleNames
    private var tally = SampleTally()
    private var programs: UInt64 = 1
    private var identity: SampleDocument.Process
    private let startedAt = Timestamp.now()
    private let started = InterruptibleWait.now
    private var lastLook = InterruptibleWait.now
    private var intervalNs: Int64?
    private var missed = 0
    private(set) var rounds = 0
    /// Why a single sample is incomplete, or why repeated samples have no stack at all. The document contains it too.
    var failure: String? { intervalNs == nil || captured == 0 ? firstFailure : nil }
    private var firstFailure: String?
    private var captured = 0

    /// - Parameters:
    ///   - deadlineNs: The longest wait for one thread's stack, in nanoseconds.
    ///   - isQuiet: Whether no progress line is shown.
    init(processID: Int32, showsAll: Bool, deadlineNs: Int64, isQuiet: Bool = false) throws(CaptureError) {
        (self.processID, self.showsAll, self.deadlineNs, self.isQuiet) = (processID, showsAll, deadlineNs, isQuiet)
        sampler = try ProcessSampler(processID: processID, deadline: .nanoseconds(deadlineNs))
        names = SampleNames(processID: processID)
        identity = SampleDocument.Process(processID)
    }

    /// - Parameter schedule: Nil for a single sample.
    /// - Throws: If the first sample has no result.
    mutating func sample(
        _ schedule: SampleSchedule?,
        _ pause: InterruptibleWait
    ) throws(CaptureError) -> SampleDocument.Ending {
        if let ending = try look(pause) {
            guard ending != .processEnded else { throw CaptureError(.noSuchProcess) }
            return ending
        }
        guard let schedule else { return .complete }
        intervalNs = schedule.intervalNs
        var progress = SampleProgress()
        defer { progress.end() }
        let end = started.addingSaturated(schedule.lengthNs)
        var next = started.addingSaturated(schedule.intervalNs)
        while next < end {
            guard pause.wait(until: next) else { return .interrupted }
            if let ending = try look(pause) { return ending }
            if !isQuiet { progress.show(rounds: rounds, elapsed: lastLook - started, of: schedule.lengthNs) }
            let following = schedule.next(after: next, now: InterruptibleWait.now, end: end)
            (next, missed) = (following.moment, missed.addingSaturated(following.missed))
        }
        return .complete
    }

    func document(_ ending: SampleDocument.Ending) -> SampleDocument {
        let (stacks, failures) = tally.document
        return SampleDocument(
            process: identity,
            startedAt: startedAt,
            durationNs: lastLook - started,
            intervalNs: intervalNs,
            samples: rounds,
            missed: missed,
            ended: ending,
            stacks: stacks,
            failures: failures,
            modules: names.modules,
            cost: .init(sampler.cost, samplerCPU: Self.ownCPU)
        )
    }

    /// Discards an interrupted round: otherwise some threads would be counted more often than others.
    ///
    /// - Returns: Why no sample was taken; nil if one was.
    private mutating func look(_ pause: InterruptibleWait) throws(CaptureError) -> SampleDocument.Ending? {
        let captures = try captures(pause)
        lastLook = InterruptibleWait.now
        guard let captures else { return .processEnded }
        guard !pause.isInterrupted else { return .interrupted }
        rounds += 1
        if sampler.programsRun != programs {
            programs = sampler.programsRun
            names.forgetAddresses()
        }
        for capture in captures { add(capture) }
        return nil
    }

    private mutating func add(_ capture: ThreadCapture) {
        switch capture.result {
        case .success(let stack):
            tally.add(stack, names.calls(of: stack), of: capture.thread)
            captured += 1
        case .failure(let error):
            let message = error.code == .notStopped ? "\(error.sentence) (\(remedy))" : error.sentence
            tally.add(error, message, of: capture.thread)
            if firstFailure == nil { firstFailure = "thread \(capture.thread.threadID): \(message)" }
        }
    }

    private var remedy: String {
        "it had \(DurationText(nanoseconds: deadlineNs).short); --deadline gives it more"
    }

    /// CPU time of this process in nanoseconds.
    private static var ownCPU: Int64 {
        var time = timespec()
        unsafe clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
        return Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
    }

    /// Nil if the process has ended. Permanent errors are thrown.
    private mutating func captures(_ pause: InterruptibleWait) throws(CaptureError) -> [ThreadCapture]? {
        do {
            return showsAll || firstThreadHasEnded ? try living(pause) : try firstThread(pause)
        } catch {
            if error.code == .noSuchProcess || error.code == .zombie { return nil }
            throw error
        }
    }

    private var firstThreadHasEnded: Bool { identity.firstThreadEnded == true }

    /// The first thread of a process can end before the others.
    private mutating func living(_ pause: InterruptibleWait) throws(CaptureError) -> [ThreadCapture] {
        let captures = try sampler.captureAll(while: pause.goesOn)
        let errors = captures.compactMap { capture -> CaptureError? in
            if case .failure(let error) = capture.result { error } else { nil }
        }
        if errors.count == captures.count, let error = errors.first, error.isOfProcess { throw error }
        if !firstThreadHasEnded, try Self.hasEnded(sampler.threads(), processID) { identity.firstThreadEnded = true }
        return captures
    }

    private static func hasEnded(_ threads: [ProcessThread], _ threadID: Int32) -> Bool {
        threads.contains { $0.threadID == threadID && ["Z", "X"].contains($0.state) }
    }

    private mutating func firstThread(_ pause: InterruptibleWait) throws(CaptureError) -> [ThreadCapture] {
        let threads = try sampler.threads()
        guard let thread = threads.first(where: { $0.threadID == processID }) else {
            throw CaptureError(.noSuchProcess)
        }
        if Self.hasEnded(threads, processID) { return try living(pause) }
        let result = sampler.capture(threadID: processID)
        if case .failure(let error) = result {
            if error.isOfProcess { throw error }
            if error.code == .threadGone { return try living(pause) }
        }
        return [ThreadCapture(thread: thread, result: result)]
    }
}

extension CaptureError {
    /// Whether all other threads and later captures would fail in the same way.
    fileprivate var isOfProcess: Bool {
        [.noSuchProcess, .zombie, .otherArchitecture, .otherUser, .ptraceScope, .protectedProcess, .accessRefused]
            .contains(code)
    }
}

extension SampleDocument.Process {
    init(_ processID: Int32) {
        self.init(
            id: processID,
            name: ProcessThread(threadID: processID, ofProcess: processID).name,
            executable: ProcessIdentity.program(of: processID)
        )
    }
}

/// A progress line.
struct SampleProgress {
    private var line = TransientLine()
    private var shownAt: Int64 = .min
    private static let interval: Int64 = 200_000_000

    mutating func show(rounds: Int, elapsed: Int64, of length: Int64) {
        guard elapsed >= shownAt &+ Self.interval || shownAt == .min else { return }
        shownAt = elapsed
        let times = [elapsed, length].map { DurationText(nanoseconds: $0).short }
        line.show("\(rounds) samples, \(times[0]) of \(times[1]); Ctrl-C ends it")
    }

    mutating func end() { line.clear() }
}
