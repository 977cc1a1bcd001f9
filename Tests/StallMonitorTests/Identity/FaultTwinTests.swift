import StallReports
import Testing

@testable import StallMonitor

/// One capture of the record.
struct FaultCapture: Hashable, Sendable, CustomStringConvertible {
    var twin: String
    var fault: String

    var description: String { "\(fault) (\(twin))" }
}

struct FaultPair: Hashable, Sendable, CustomStringConvertible {
    var first: FaultCapture
    var second: FaultCapture

    var description: String { "\(first) and \(second)" }
}

/// Stacks of real programs: ``FaultRecord``.
@Suite("Fingerprints of recorded faults")
struct FaultTwinTests {
    private let record: FaultRecord
    private let fingerprints: [FaultCapture: Fingerprint]

    init() throws {
        record = try FaultRecord.read()
        fingerprints = record.all { [record] in record.fingerprint($0.twin, $0.fault) }
    }

    /// The same source, compiled in different ways, at different lines, and loaded at different places.
    private static let builds = ["debug", "debug-moved", "release", "release-moved", "release-small", "release-fixed"]

    /// Faults that are the same: another line of the function, another cause, specialisation or depth, another
    /// distant caller, another language in between.
    private static let sameFaults: [[String]] = [
        ["first-place", "second-place"], ["asleep", "computing"], ["generic-int", "generic-string"],
        ["box-int", "box-string"], ["walk", "walk-deep"], ["even-6", "even-9", "even-20"],
        ["long-way-a", "long-way-b"], ["async-generic-int", "async-generic-string"],
        ["async-deep-2", "async-deep-20"], ["store-int", "store-string"], ["order", "c-callback"],
    ]

    /// Faults in functions with identical code: an optimising compiler merges them, under either name.
    private static let mergedFaults: Set = ["left", "right", "long-way-a", "long-way-b"]

    private func isMerged(_ capture: FaultCapture) -> Bool {
        capture.twin.hasPrefix("release") && Self.mergedFaults.contains(capture.fault)
    }

    private var same: [FaultPair] {
        let twins = faults("debug").flatMap { fault in
            Self.builds.dropFirst().map { pair("debug", fault, $0, fault) }
        }
        let again = ["release", "release-stripped"].flatMap { twin in
            faults(twin + "-again").map { pair(twin, $0, twin + "-again", $0) }
        }
        let groups = Self.builds.flatMap { twin in
            Self.sameFaults.flatMap { group in group.dropFirst().map { pair(twin, group[0], twin, $0) } }
        }
        return (twins + again + groups).filter { !isMerged($0.first) && !isMerged($0.second) }
    }

    /// Every two faults of a build that are not the same.
    private var different: [FaultPair] {
        Self.builds.flatMap { twin in
            let faults = faults(twin).filter { !isMerged(FaultCapture(twin: twin, fault: $0)) }
            return faults.indices.flatMap { first in
                faults[(first + 1)...].filter { second in
                    !Self.sameFaults.contains { $0.contains(faults[first]) && $0.contains(second) }
                }.map { pair(twin, faults[first], twin, $0) }
            }
        }
    }

    private func faults(_ twin: String) -> [String] { record.captures[twin]?.keys.sorted() ?? [] }

    private func pair(_ twin: String, _ fault: String, _ otherTwin: String, _ otherFault: String) -> FaultPair {
        FaultPair(first: .init(twin: twin, fault: fault), second: .init(twin: otherTwin, fault: otherFault))
    }

    @Test("The same fault has the same fingerprint in every build, at every address, in every run")
    func equal() {
        #expect(same.count >= 400)
        for pair in same {
            #expect(
                fingerprints[pair.first] == fingerprints[pair.second],
                "\(pair): \(record.path(pair.first)), \(record.path(pair.second))"
            )
        }
    }

    @Test("Different faults have different fingerprints")
    func distinct() {
        #expect(different.count >= 10_000)
        for pair in different where fingerprints[pair.first] == fingerprints[pair.second] {
            Issue.record("\(pair): \(record.path(pair.first))")
        }
    }

    @Test("The former scheme gets over 100 equal pairs wrong: these pairs can tell schemes apart")
    func schemeBefore() {
        let old = record.all { capture in
            record.frames(capture.twin, capture.fault).map { FingerprintV1.input($0, record.modules) }
        }
        let wrong = same.count { old[$0.first] != old[$0.second] }
        #expect(wrong > 100)
        print("v1: \(wrong) of \(same.count) equal pairs wrong")
    }

    @Test("Without debug information whole functions keep their fingerprint; without names each has its own")
    func stripped() {
        let faults = faults("release")
        func fingerprint(_ twin: String, _ fault: String) -> Fingerprint? {
            fingerprints[FaultCapture(twin: twin, fault: fault)]
        }
        let plain = faults.count { fingerprint("release-plain", $0) == fingerprint("release", $0) }
        let distinct = Set(faults.map { fingerprint("release-stripped", $0) }).count
        print("as with debug information: \(plain) of \(faults.count); distinct without names: \(distinct)")
        #expect(plain >= 10 && distinct >= 70)
    }
}

extension FaultRecord {
    /// A value for each capture.
    fileprivate func all<Value>(_ make: (FaultCapture) -> Value?) -> [FaultCapture: Value] {
        var made: [FaultCapture: Value] = [:]
        for (twin, faults) in captures {
            for fault in faults.keys {
                let capture = FaultCapture(twin: twin, fault: fault)
                made[capture] = make(capture)
            }
        }
        return made
    }

    fileprivate func path(_ capture: FaultCapture) -> [String] { path(capture.twin, capture.fault) }
}
