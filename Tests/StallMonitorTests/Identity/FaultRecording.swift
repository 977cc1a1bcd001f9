import Foundation
import RunLoopKit
import StackCapture
import StallReports
import Symbolication
import TestSupport
import Testing

@testable import StallMonitor

/// Where the programs are.
private let faultTwins = ProcessInfo.processInfo.environment["FAULT_TWINS"]

/// Creates the record anew if `FAULT_TWINS` names the folder that `Tests/Fixtures/FaultTwins/make` has built:
///
///     Tests/Fixtures/FaultTwins/make /tmp/twins && FAULT_TWINS=/tmp/twins swift test --filter FaultRecording
@Suite("Recording of fault twins", .enabled(if: faultTwins != nil, "FAULT_TWINS names no folder with the twins"))
struct FaultRecording {
    /// The twins, each with the program that it is a run of: `again` is a second run.
    private static let twins = [
        "debug", "debug-moved", "release", "release-moved", "release-small", "release-fixed", "release-plain",
        "release-stripped",
    ]

    @Test("Every fault of every twin")
    func record() throws {
        let folder = try #require(faultTwins)
        let list = try TargetProcess("--list", executable: URL(filePath: folder + "/debug")).rest()
        let faults = list.split(separator: "\n").map(String.init)
        var record = FaultRecord()
        for twin in Self.twins {
            for fault in faults {
                let book = try #require(try Self.book(folder + "/" + twin, fault), "\(twin) \(fault)")
                record.add(twin, fault, book.culpritFrames, book.modules)
            }
        }
        for fault in faults where fault.hasSuffix("order") {
            for twin in ["release", "release-stripped"] {
                let book = try #require(try Self.book(folder + "/" + twin, fault))
                record.add(twin, fault, book.culpritFrames, book.modules, as: twin + "-again")
            }
        }
        try record.write()
    }

    /// What a report of the stall would be made from.
    private static func book(_ executable: String, _ fault: String) throws -> SymbolicatedStacks? {
        let process = try TargetProcess(fault, executable: URL(filePath: executable))
        let sampler = try ProcessSampler(processID: process.processID)
        let symbolicator = Symbolicator(processID: process.processID)
        let deadline = MonotonicInstant.now + .seconds(20)
        while MonotonicInstant.now < deadline {
            let stacks = try sampler.captureAll().compactMap { try? $0.result.get() }
            let standing = stacks.filter {
                $0.systemCall?.name == (fault == "computing" ? nil : "clock_nanosleep") && $0.isComplete
            }
            for stack in standing {
                let book = SymbolicatedStacks(
                    [StackSample(time: .now, stack: stack)],
                    thread: .init(id: process.processID),
                    clock: WallClockAnchor(),
                    name: { symbolicator.resolve($0, budget: .tool) },
                    isOwn: { OwnCode().isOwn($0, module: $1, executable: executable) }
                )
                let isBusy = fault != "computing" || book.stacks[0].frames.count > 8
                if isBusy { return book }
            }
            usleep(1_000)
        }
        return nil
    }
}
