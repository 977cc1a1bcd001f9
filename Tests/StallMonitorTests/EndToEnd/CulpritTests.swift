import Dispatch
import Foundation
import RunLoopKit
import StallReports
import TestSupport
import Testing

@testable import StallMonitor

/// Threads that really compute, in code of every shape. This target is own code; `TestSupport` and Foundation act as
/// libraries.
@Suite(
    "The function to blame",
    .serialized,
    .captureSignal,
    .timeLimit(.minutes(60)),
    .repeatedWhenLate(by: .milliseconds(50))
)
struct CulpritTests {
    private let directory = TemporaryDirectory(inMemory: true)

    /// The report of a stall with a stack that also satisfies `isWanted`. On a machine that gives the thread no CPU
    /// time a report may not; then the stall is repeated.
    private func report(
        where isWanted: (StallReport) -> Bool = { _ in true },
        of work: @escaping @Sendable (StallingLoop) -> Void
    ) async throws -> StallReport {
        var report: StallReport?
        for _ in 0...10 where report.map({ $0.stacks.allSatisfy(\.frames.isEmpty) || !isWanted($0) }) ?? true {
            report = try await onThread { attempt(work) }
        }
        return try #require(report, "the stall was not reported")
    }

    private func attempt(_ work: @escaping @Sendable (StallingLoop) -> Void) -> StallReport? {
        let (log, worker) = (EventLog(), StallingLoop())
        var configuration = StallMonitor.Configuration(directory: directory.path + "/reports", repeats: .everyStall)
        configuration.ownCode = OwnCode(modules: ["StallMonitorTests"])
        let monitor = StallMonitor.start(configuration, watching: [worker.loop], onEvent: log.handler)
        work(worker)
        let isReported = log.wait { !$0.ended.isEmpty }
        monitor.stop()
        worker.end()
        return isReported ? log.ended.max { $0.durationNs < $1.durationNs } : nil
    }

    private func culprit(of work: @escaping @Sendable () -> Void) async throws -> String {
        try await report { $0.perform(work) }.culprit?.function ?? "none"
    }

    @Test("An own function that spends all its time in a library")
    func callsLibrary() async throws {
        #expect(try await culprit { _ = stallInLibrary(600) }.contains("stallInLibrary"))
    }

    @Test("A function that calls itself")
    func recursion() async throws {
        #expect(try await culprit { _ = stallInRecursion(25, 600) }.contains("stallInRecursion"))
    }

    @Test("Generic code that calls own code")
    func generic() async throws {
        #expect(try await culprit { _ = stallInGeneric(UInt16(3), 600) }.contains("stallInGeneric"))
    }

    @Test("A closure that a library calls is not to blame, the function that called the library is")
    func closure() async throws {
        #expect(try await culprit { _ = stallInClosure(600) }.contains("stallInClosure"))
    }

    @Test("Decoding of own types by a library that calls own code for each value")
    func decoding() async throws {
        #expect(try await culprit { _ = stallInDecoding(600) }.contains("stallInDecoding"))
    }

    @Test("The function that was there longest is to blame, not the one seen last")
    func notTheLast() async throws {
        let found = try await culprit {
            _ = stallInLibrary(1_200)
            _ = stallInSleep(60)
        }
        #expect(!found.contains("stallInSleep"))
    }

    @Test("A stall within a library only is reported with the library's function")
    func libraryAlone() async throws {
        let report = try await report { worker in
            let done = DispatchSemaphore(value: 0)
            worker.loop.perform(signalling(done, after: 600))
            done.wait()
        }
        #expect(report.culprit?.module == "TestSupport", "\(String(describing: report.culprit))")
    }

    @Test("An own function that awaits a computing function of a library")
    func awaiting() async throws {
        let report = try await report { worker in
            let done = DispatchSemaphore(value: 0)
            let page = Page(on: worker.loop)
            Task {
                _ = await page.stallInAwait(600)
                done.signal()
            }
            done.wait()
        }
        let culprit = try #require(report.culprit)
        let named = culprit.function?.contains("stallInAwait") == true && culprit.isAwaiting == true
        try #require(named, "\(culprit) \(report.stacks)")
        let frames = try #require(report.stacks[culprit.stack].async?.frames)
        #expect(frames[culprit.frame].function == culprit.function)
    }

    @Test("CPU time is split into user and system, and the hottest function is named")
    func computing() async throws {
        let report = try await report(where: { $0.cause.verdict == .onCPU }) { $0.perform { _ = stallInLibrary(900) } }
        let evidence = try #require(report.cause.evidence)
        // On a machine with enough other work the thread waits for a CPU longer than it has one; then that is
        // reported.
        let isStarved = (evidence.runDelayNs ?? 0) > (evidence.cpuNs ?? 0)
        #expect(report.cause.verdict == (isStarved ? .starved : .onCPU))
        #expect(isStarved || report.cause.summary.contains("mostly in"), "\(report.cause.summary)")
        #expect((evidence.userNs ?? 0) + (evidence.systemNs ?? 0) == evidence.cpuNs ?? -1)
        #expect(evidence.processors?.count ?? 0 >= 1 && evidence.processors?.load != nil)
    }
}

@inline(never)
func stallInLibrary(_ milliseconds: Int) -> Int {
    computeInLibrary(milliseconds: milliseconds) &+ 1
}

@inline(never)
func stallInRecursion(_ depth: Int, _ milliseconds: Int) -> Int {
    guard depth > 0 else { return computeInLibrary(milliseconds: milliseconds) &+ 1 }
    return stallInRecursion(depth - 1, milliseconds) &+ depth
}

@inline(never)
func stallInGeneric<Number: FixedWidthInteger>(_ seed: Number, _ milliseconds: Int) -> Number {
    let end = MonotonicInstant.now.advanced(by: .milliseconds(milliseconds))
    var sum = seed
    while MonotonicInstant.now < end {
        for step in 0..<Number(100) { sum = sum &* 31 &+ step }
    }
    return sum
}

@inline(never)
func stallInClosure(_ milliseconds: Int) -> Int {
    let factor = milliseconds | 1
    return repeatInLibrary(milliseconds: milliseconds) { value in
        (0..<200).reduce(value) { $0 &* factor &+ $1 }
    }
}

private struct Row: Codable {
    var id: Int
    var name: String
    var tags: [String]
}

@inline(never)
func stallInDecoding(_ milliseconds: Int) -> Int {
    let row = #"{"id": 1, "name": "a longer name than fits", "tags": ["a", "b", "c"]}"#
    let text = "[" + Array(repeating: row, count: 500).joined(separator: ",") + "]"
    let end = MonotonicInstant.now.advanced(by: .milliseconds(milliseconds))
    var count = 0
    while MonotonicInstant.now < end {
        count += (try? JSONDecoder().decode([Row].self, from: Data(text.utf8)))?.count ?? 0
    }
    return count
}

private actor Page {
    private nonisolated let loop: EventRunLoop

    init(on loop: EventRunLoop) { self.loop = loop }

    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe loop.asUnownedSerialExecutor() }

    func stallInAwait(_ milliseconds: Int) async -> Int {
        await computeAsLibrary(milliseconds: milliseconds) &+ 1
    }
}
