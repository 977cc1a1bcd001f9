import Glibc
import RunLoopKit
import StackCapture
import StallReports
import Testing

@testable import StallMonitor

@Suite("The cause, from what the kernel counted")
struct DiagnosisTests {
    private func window(cpu: Int = 0, delay: Int = 0, of length: Int = 250) -> EvidenceWindow {
        func evidence(_ cpu: Int, _ delay: Int) -> ThreadEvidence {
            ThreadEvidence(
                stat: "7 (main) S 1 1 1 0 -1 0 0 0 0",
                schedstat: "\(cpu * 1_000_000) \(delay * 1_000_000) 1"
            )!
        }
        return EvidenceWindow(
            length: .milliseconds(length),
            before: evidence(10, 10),
            after: evidence(10 + cpu, 10 + delay)
        )
    }

    private func call(_ number: Int, _ arguments: [UInt] = [5, 0, 0, 0, 0, 0]) -> SystemCall {
        SystemCall(number: number, arguments: arguments)
    }

    private func diagnose(
        _ window: EvidenceWindow?,
        state: Character = "S",
        call: SystemCall? = nil,
        target: String? = nil
    ) -> Diagnosis {
        let site = call.map { call in
            let decoded = DecodedCall(call) { _, _ in nil }
            let sightings = decoded.descriptors.prefix(1).map { DescriptorSighting(number: $0, link: target) }
            return WaitSite(call: call, state: state, decoded: decoded, descriptors: sightings)
        }
        let stack = CapturedStack(
            frames: [],
            method: site == nil ? .signal : .quiet,
            cost: .init(heldNanoseconds: 0, unwindNanoseconds: 0, bytesCopied: 0)
        )
        let sample = StackSample(time: .now, stack: stack, site: site)
        let waits = WaitProfile(site == nil ? [] : [(sample, .milliseconds(50))])
        let descriptors = site.map { DescriptorLookup($0).unasked } ?? []
        return Diagnosis(window: window, state: state, waits: waits, descriptors: descriptors)
    }

    @Test("Most of the time on a CPU is on_cpu, with the share in words")
    func onCPU() {
        let diagnosis = diagnose(window(cpu: 245), state: "R")
        #expect(diagnosis.verdict == .onCPU)
        #expect(diagnosis.summary.contains("98 % of 250 ms"))
    }

    @Test("Ready to run without a CPU is starved, even where the thread got some")
    func starved() {
        #expect(diagnose(window(cpu: 60, delay: 180), state: "R").verdict == .starved)
    }

    @Test("Waiting in a system call is blocked, and says on what")
    func blocked() {
        let diagnosis = diagnose(window(cpu: 1), call: call(0), target: "pipe:[77]")
        #expect(diagnosis.verdict == .blocked)
        #expect(diagnosis.summary == "The thread waited in read(2) on descriptor 5 (pipe:[77]).")
    }

    @Test("A futex is told as what waits on it")
    func futex() {
        let diagnosis = diagnose(window(), call: call(202, [0x7f00, 0, 0, 0, 0, 0]))
        #expect(diagnosis.verdict == .blocked)
        #expect(diagnosis.summary.contains("lock") && diagnosis.summary.contains("0x7f00"))
    }

    @Test("fsync, and the state D, are disk waits")
    func diskWait() {
        #expect(diagnose(window(), call: call(74), target: "/var/db").verdict == .diskWait)
        #expect(diagnose(window(), state: "D", call: call(0)).verdict == .diskWait)
    }

    @Test("A stopped thread is paused, whatever it did before", arguments: ["T", "t"] as [Character])
    func paused(_ state: Character) {
        #expect(diagnose(window(cpu: 250), state: state).verdict == .paused)
    }

    @Test("Without evidence and without a call there is no verdict")
    func unknown() {
        #expect(diagnose(nil, state: "R").verdict == .unknown)
        #expect(diagnose(window(), state: "S").verdict == .unknown)
    }
}

@Suite("What the kernel says of a thread")
struct ThreadEvidenceTests {
    @Test("A name with spaces and parentheses does not shift the fields")
    func hostileName() throws {
        let evidence = try #require(
            ThreadEvidence(stat: "12 (a) R (b) D 1 2 3 4 5 6 7 8 93 10", schedstat: "123456 789 4\n")
        )
        #expect(evidence.name == "a) R (b")
        #expect(evidence.state == "D" && evidence.majorFaults == 93)
        #expect(evidence.cpuNanoseconds == 123_456 && evidence.runDelayNanoseconds == 789)
    }

    @Test("Text of another form is no evidence", arguments: ["", "12 a R", "12 (a", "12 ) ( R", "12 (a) R 1 2"])
    func malformed(_ stat: String) {
        #expect(ThreadEvidence(stat: stat, schedstat: "1 2 3") == nil)
        #expect(ThreadEvidence(stat: "1 (a) R 1 2 3 4 5 6 7 8 9 10", schedstat: stat) == nil)
    }

    @Test("A living thread can be read, one that is not there cannot")
    func real() {
        #expect(ThreadEvidence.read(threadID: Int32(getpid()))?.state != nil)
        #expect(ThreadEvidence.read(threadID: -1) == nil)
    }
}
