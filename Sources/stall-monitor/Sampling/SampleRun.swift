import Glibc
import StackCapture
import StallReports

/// When to look.
struct SampleSchedule: Hashable {
    var intervalNs: Int64
    var lengthNs: Int64
}

/// Looks at one process, once or again and again.
struct SampleRun {
    private let processID: Int32
    private let showsAll: Bool
    private let sampler: ProcessSampler
    private var names: SampleNames
    private var tally = SampleTally()
    private var programs: UInt64 = 1
    private let identity: SampleDocument.Process
    private let startedAt = Timestamp.now()
    private let started = SamplePause.now
    private var lastLook = SamplePause.now
    private var intervalNs: Int64?
    private var missed = 0
    private(set) var rounds = 0
    /// In words: of a single look that gave less than was asked for, or of many that gave nothing.
    var failure: String? { intervalNs == nil || captured == 0 ? firstFailure : nil }
    private var firstFailure: String?
    private var captured = 0

    init(processID: Int32, showsAll: Bool) throws(CaptureError) {
        (self.processID, self.showsAll) = (processID, showsAll)
        sampler = try ProcessSampler(processID: processID)
        names = SampleNames(processID: processID)
        identity = SampleDocument.Process(processID)
    }

    /// - Parameter schedule: nil for a single look.
    /// - Throws: if not even the first look gave anything.
    mutating func sample(
        _ schedule: SampleSchedule?,
        _ pause: SamplePause
    ) throws(CaptureError) -> SampleDocument.Ending {
        guard try look() else { throw CaptureError(.noSuchProcess) }
        guard let schedule else { return .complete }
        intervalNs = schedule.intervalNs
        var progress = SampleProgress()
        defer { progress.end() }
        var next = started + schedule.intervalNs
        while next < started + schedule.lengthNs {
            guard pause.wait(until: next) else { return .interrupted }
            guard try look() else { return .processEnded }
            progress.show(rounds: rounds, elapsed: lastLook - started, of: schedule.lengthNs)
            let due = max(1, (SamplePause.now - next + schedule.intervalNs - 1) / schedule.intervalNs)
            missed += Int(due - 1)
            next += due * schedule.intervalNs
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
            cost: .init(sampler.cost)
        )
    }

    /// - Returns: false if the process has ended.
    private mutating func look() throws(CaptureError) -> Bool {
        guard let captures = try captures() else { return false }
        lastLook = SamplePause.now
        rounds += 1
        if sampler.programsRun != programs {
            programs = sampler.programsRun
            names.forgetAddresses()
        }
        for capture in captures { add(capture) }
        return true
    }

    private mutating func add(_ capture: ThreadCapture) {
        switch capture.result {
        case .success(let stack):
            tally.add(stack, names.calls(of: stack), of: capture.thread)
            captured += 1
        case .failure(let error):
            tally.add(error, of: capture.thread)
            if firstFailure == nil { firstFailure = "thread \(capture.thread.threadID): \(error)" }
        }
    }

    /// Nil if the process has ended. What no later look can change is thrown.
    private func captures() throws(CaptureError) -> [ThreadCapture]? {
        do {
            return showsAll ? try sampler.captureAll() : try firstThread()
        } catch {
            if error.code == .noSuchProcess || error.code == .zombie { return nil }
            throw error
        }
    }

    private func firstThread() throws(CaptureError) -> [ThreadCapture] {
        guard let thread = try sampler.threads().first(where: { $0.threadID == processID }) else {
            throw CaptureError(.noSuchProcess)
        }
        let result = sampler.capture(threadID: processID)
        if case .failure(let error) = result, error.isOfProcess { throw error }
        return [ThreadCapture(thread: thread, result: result)]
    }
}

extension CaptureError {
    /// Whether every other thread, and every later capture, would end so.
    fileprivate var isOfProcess: Bool {
        [.noSuchProcess, .zombie, .otherArchitecture, .otherUser, .ptraceScope, .protectedProcess, .accessRefused]
            .contains(code)
    }
}

extension SampleDocument.Process {
    fileprivate init(_ processID: Int32) {
        let name = ProcessThread(threadID: processID, ofProcess: processID).name
        let bytes = unsafe [UInt8](unsafeUninitializedCapacity: Int(PATH_MAX)) { buffer, initialized in
            initialized = unsafe buffer.withMemoryRebound(to: CChar.self) {
                unsafe max(0, readlink("/proc/\(processID)/exe", $0.baseAddress!, $0.count))
            }
        }
        self.init(
            id: processID,
            name: name,
            executable: bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
        )
    }
}
