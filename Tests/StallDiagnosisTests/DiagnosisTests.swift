import Glibc
import StackCapture
import StallReports
import Testing

@testable import StallDiagnosis

/// 219 stands for a call that this architecture does not have.
private func call(_ name: String, _ arguments: [UInt] = [5, 0, 0, 0, 0, 0]) -> SystemCall {
    SystemCall(number: SystemCall.numbers(of: [name]).first ?? 219, arguments: arguments)
}

@Suite("The cause, from the kernel's counters")
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

    private func diagnose(
        _ window: EvidenceWindow?,
        state: Character = "S",
        call: SystemCall? = nil,
        target: String? = nil
    ) -> Diagnosis {
        let site = call.map { call in
            let decoded = DecodedCall(call) { _, _ in nil }
            let readings = decoded.descriptors.prefix(1).map { DescriptorReading(number: $0, link: target) }
            return WaitSite(call: call, state: state, decoded: decoded, descriptors: readings)
        }
        let waits = WaitProfile(site.map { [.init($0, isAsleep: true, for: .milliseconds(50))] } ?? [])
        let descriptors = site.map { DescriptorLookup($0).unasked } ?? []
        return Diagnosis(window: window, state: state, waits: waits, descriptors: descriptors)
    }

    @Test("Most of the time on a CPU is on_cpu, with the share in words")
    func onCPU() {
        let diagnosis = diagnose(window(cpu: 245), state: "R")
        #expect(diagnosis.verdict == .onCPU)
        #expect(diagnosis.summary.contains("98 % of 250 ms"))
    }

    @Test("A sentence has whole milliseconds, the nearest ones, like the figures that are shown with it")
    func rounding() {
        var window = window(cpu: 245)
        window.length = .microseconds(250_600)
        #expect(diagnose(window, state: "R").summary.contains("98 % of 251 ms"))
    }

    @Test("A thread that was mostly found asleep was asleep, too, while the watcher did not run")
    func unobserved() {
        let whole = window(cpu: 100, delay: 200, of: 1000)
        let rest = whole.leavingOut(.milliseconds(600), unobserved: .milliseconds(600))
        #expect(diagnose(rest, call: call("read")).verdict == .blocked && diagnose(rest).verdict == .starved)
        // A thread that was stopped did not sleep.
        #expect(diagnose(whole.leavingOut(.milliseconds(600)), call: call("read")).verdict == .starved)
    }

    @Test("Counts that were read late are used if they show whether the thread slept, whatever it has done since")
    func lateCounts() {
        func isUsed(cpu: Int, delay: Int, lateBy lateness: Int) -> Bool {
            window(cpu: cpu, delay: delay, of: 400).conclusive(readLateBy: .milliseconds(lateness)) != nil
        }
        #expect(isUsed(cpu: 150, delay: 150, lateBy: 100) && !isUsed(cpu: 150, delay: 150, lateBy: 101))
        // It slept, although it may have run since.
        #expect(isUsed(cpu: 100, delay: 100, lateBy: 5000) && !isUsed(cpu: 100, delay: 101, lateBy: 5000))
        // It did not sleep, even if it has run since: as on a busy machine, on which the watcher is late, too.
        #expect(isUsed(cpu: 50, delay: 350, lateBy: 200) && !isUsed(cpu: 50, delay: 350, lateBy: 201))
    }

    @Test("A new thread with the number of one that has ended has not run for centuries")
    func reusedNumber() {
        let window = window(cpu: -9, delay: -9)
        #expect(window.cpu == .zero && window.runDelay == .zero)
        #expect(diagnose(window, call: call("read")).verdict == .blocked)
    }

    @Test("Ready to run without a CPU is starved, even if the thread got some CPU time")
    func starved() {
        #expect(diagnose(window(cpu: 60, delay: 180), state: "R").verdict == .starved)
    }

    @Test(
        "A thread that waited for most of the time is not starved, even if it mostly queued when ready"
    )
    func briefQueue() {
        #expect(diagnose(window(cpu: 1, delay: 5), state: "S", call: call("read")).verdict == .blocked)
        #expect(diagnose(window(cpu: 1, delay: 124), state: "S", call: call("fsync")).verdict == .diskWait)
        #expect(diagnose(window(cpu: 1, delay: 125), state: "S", call: call("read")).verdict == .starved)
    }

    @Test("Waiting in a system call is blocked, and says for what")
    func blocked() {
        let diagnosis = diagnose(window(cpu: 1), call: call("read"), target: "pipe:[77]")
        #expect(diagnosis.verdict == .blocked)
        #expect(diagnosis.summary == "The thread waited in read(2) on descriptor 5 (pipe:[77]).")
    }

    @Test("A futex is reported as the kind of lock that waits on it")
    func futex() {
        let diagnosis = diagnose(window(), call: call("futex", [0x7f00, 0, 0, 0, 0, 0]))
        #expect(diagnosis.verdict == .blocked)
        #expect(diagnosis.summary.contains("lock") && diagnosis.summary.contains("0x7f00"))
    }

    @Test("fsync, and the state D, are disk waits")
    func diskWait() {
        #expect(diagnose(window(), call: call("fsync"), target: "/var/db").verdict == .diskWait)
        #expect(diagnose(window(), state: "D", call: call("read")).verdict == .diskWait)
    }

    @Test("The call in most samples is reported with its file, even if it spent more time on a CPU than waiting")
    func busyCall() {
        let found = "Most samples found it in fsync(2) on descriptor 5 (/var/db/journal.bin)."
        let computing = diagnose(window(cpu: 200), call: call("fsync"), target: "/var/db/journal.bin")
        #expect(
            computing.verdict == .onCPU && computing.summary.hasSuffix("on a CPU. " + found),
            "\(computing.summary)"
        )
        let starved = diagnose(window(cpu: 20, delay: 200), call: call("fsync"), target: "/var/db/journal.bin")
        #expect(starved.verdict == .starved && starved.summary.hasSuffix(". " + found), "\(starved.summary)")
        #expect(!diagnose(window(cpu: 245), state: "R").summary.contains("samples"))
    }

    @Test("The process that is waited for is named only if its number means the same here")
    func awaitedProcess() {
        let wait = call("wait4", [UInt(getpid()), 0, 0, 0, 0, 0])
        #expect(WaitSite(wait, state: "S") { _, _ in nil }.process?.pid == getpid())
        // The namespace of a process that is not there is not ours.
        let other = WaitSite(wait, state: "S", of: ObservedProcess(otherID: .max)) { _, _ in nil }
        #expect(other.process == nil && other.decoded.argument("pid") == "\(getpid())")
        #expect(Diagnosis.purpose(other, []) == "The thread waited for a child process to end in wait4(2).")
    }

    @Test("A call that continues after a signal is reported by its name on the stack, with its arguments")
    func continuedCall() {
        var time = [UInt8](repeating: 0, count: 16)
        // 700,000,000 nanoseconds.
        time.replaceSubrange(8..<12, with: [0x00, 0x27, 0xb9, 0x29])
        let site = WaitSite(call("restart_syscall", [0, 0, 0x1000, 0, 0, 0]), state: "S") {
            $0 == 0x1000 && $1 == 16 ? time : nil
        }
        #expect(site.call.name == "restart_syscall" && site.decoded.arguments == nil)
        for symbol in ["__GI___clock_nanosleep", "clock_nanosleep@@GLIBC_2.17", "usleep"] {
            let settled = site.settled(by: ["syscall_cancel", symbol])
            #expect(
                settled.call.name == "clock_nanosleep" && settled.decoded.argument("request") == "700ms",
                "\(symbol)"
            )
            #expect(Diagnosis.purpose(settled, []) == "The thread slept in clock_nanosleep(2), for 700ms.")
        }
        // aarch64 has no such call.
        let poll = SystemCall.numbers(of: ["poll"]).isEmpty ? "restart_syscall" : "poll"
        #expect(site.settled(by: ["__poll"]).call.name == poll && site.settled(by: ["main"]) == site)
        #expect(site.settled(by: []) == site)
    }

    @Test("A stall that was over before the first look says so; one that was seen does not")
    func overUnseen() {
        let waits = WaitProfile([])
        let unseen = Diagnosis(window: nil, state: "S", waits: waits, wasSeen: false)
        #expect(unseen.verdict == .unknown && unseen.summary.hasSuffix("the stall was over before it was looked at."))
        let unmeasured = "No cause could be read off: the thread's times could not be read."
        #expect(Diagnosis(window: nil, state: "S", waits: waits).summary == unmeasured)
        // The kernel's counters are known anyway.
        #expect(Diagnosis(window: window(cpu: 245), state: "S", waits: waits, wasSeen: false).verdict == .onCPU)
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

    @Test("Where the thread's times were read only once, nothing is said about what it did between")
    func readOnce() {
        let ready = diagnose(window(of: 0), state: "R")
        #expect(ready.verdict == .unknown && ready.summary.hasSuffix("its times were read only once."))
        #expect(diagnose(window(), state: "R").verdict == .unknown)
        #expect(diagnose(window(), state: "R").summary.contains("neither computed"))
    }
}

@Suite("The cause, with mixed evidence")
struct MixedEvidenceTests {
    private func window(cpu: Int = 0, delay: Int = 0, faults: Int = 0, blockIO: Int = 0, of length: Int = 200)
        -> EvidenceWindow
    {
        func evidence(_ share: Int) -> ThreadEvidence {
            var fields = [String](repeating: "0", count: 42)
            (fields[9], fields[39]) = ("\(faults * share)", "\(share * blockIO / 10 + 1)")
            fields[0] = "R"
            // Three quarters of the time are user time.
            (fields[11], fields[12]) = ("\(share * cpu * 3 / 40)", "\(share * cpu / 40)")
            return ThreadEvidence(
                stat: "7 (main) " + fields.joined(separator: " "),
                schedstat: "\(share * cpu * 1_000_000) \(share * delay * 1_000_000) 1"
            )!
        }
        return EvidenceWindow(length: .milliseconds(length), before: evidence(0), after: evidence(1))
    }

    private func supply(
        throttled: Int = 0,
        of periods: Int = 0,
        isLimited: Bool = false,
        steal: Int = 0,
        runnable: Int = 1,
        allowed: Int = 2
    ) -> SupplyWindow {
        var files = SupplyFiles()
        let isLimited = isLimited || periods > 0
        if isLimited { files.limited = [.init(statistics: "/c/cpu.stat", quotaPercent: 20)] }
        func reading(_ share: Int) -> ProcessorSupply {
            var supply = ProcessorSupply()
            if isLimited {
                supply.groups = [
                    .init(
                        "nr_periods \(periods * share)\nnr_throttled \(throttled * share)\nthrottled_usec \(throttled * 80_000 * share)"
                    )
                ]
            }
            (supply.steal, supply.systemPressure) = (UInt64(share * steal) * 1_000_000, UInt64(share) * 150_000)
            supply.load = .init("1.0 1.0 1.0 \(runnable)/80 1")
            return supply
        }
        return SupplyWindow(files: files, before: reading(0), after: reading(1), processors: 2, allowed: allowed)
    }

    private func waits(_ parts: (name: String?, state: Character, milliseconds: Int)...) -> WaitProfile {
        WaitProfile(
            parts.map { part in
                let site = part.name.map { name in
                    WaitSite(call: call(name), state: part.state, decoded: DecodedCall(call(name)) { _, _ in nil })
                }
                return .init(site, isAsleep: part.state != "R", for: .milliseconds(part.milliseconds))
            }
        )
    }

    @Test("A quota that limits the cgroup is reported with its figures")
    func quota() {
        var window = window(cpu: 20, delay: 180)
        window.supply = supply(throttled: 2, of: 2, runnable: 9)
        let diagnosis = Diagnosis(window: window, state: "R", waits: waits())
        #expect(diagnosis.verdict == .starved)
        #expect(
            diagnosis.summary
                == "The thread was ready to run and got no CPU: throttled by the cgroup quota of 20 % of a CPU, 180 of 200 ms, in 2 of 2 periods."
        )
    }

    @Test("A quota that did not throttle is not to blame: too many threads are")
    func crowd() {
        var window = window(cpu: 20, delay: 180)
        window.supply = supply(throttled: 0, of: 2, runnable: 9)
        let crowded = "it waited for one for 180 of 200 ms (90 %), with 9 runnable threads on 2 CPUs, CPU pressure 75 %"
        #expect(Diagnosis(window: window, state: "R", waits: waits()).summary.contains(crowded))
        // Nor one of which no period ended.
        window.supply = supply(isLimited: true, runnable: 9)
        #expect(Diagnosis(window: window, state: "R", waits: waits()).summary.contains(crowded))
    }

    @Test("A wait for a CPU or a disk that began before the window counts only for the window")
    func earlierDelay() {
        let window = window(delay: 260)
        #expect(window.runDelay == .milliseconds(200))
        #expect(self.window(blockIO: 260).blockIO == .milliseconds(200))
        let summary = Diagnosis(window: window, state: "R", waits: waits()).summary
        #expect(summary.contains("it waited for one for 200 of 200 ms (100 %)"))
    }

    @Test("Pinned to some of the CPUs, and stolen time")
    func pinnedAndStolen() {
        var window = window(cpu: 20, delay: 180)
        window.supply = supply(runnable: 2, allowed: 1)
        #expect(Diagnosis(window: window, state: "R", waits: waits()).summary.contains("it may use 1 of 2 CPUs only"))
        window.supply = supply(steal: 300, runnable: 9)
        #expect(
            Diagnosis(window: window, state: "R", waits: waits()).summary.contains(
                "the hypervisor gave 150 ms of each CPU"
            )
        )
        // Neither on a CPU nor in the run queue: the hypervisor used the time.
        var away = self.window(cpu: 20)
        away.supply = supply(steal: 300)
        #expect(Diagnosis(window: away, state: "R", waits: waits((nil, "R", 200))).verdict == .starved)
        away.supply = supply(steal: 100)
        #expect(Diagnosis(window: away, state: "R", waits: waits((nil, "R", 200))).verdict == .unknown)
    }

    @Test("CPU time is reported split into user and system, and by where it was spent")
    func parts() {
        let diagnosis = Diagnosis(window: window(cpu: 160), state: "R", waits: waits(), hottest: "parse(_:)")
        #expect(
            diagnosis.summary
                == "The thread was computing: 80 % of 200 ms on a CPU, 120 ms in the program and 40 ms in the kernel, mostly in parse(_:)."
        )
    }

    @Test("The longest wait decides, not where the thread was found first or last")
    func longestWait() {
        let diagnosis = Diagnosis(
            window: window(cpu: 5),
            state: "S",
            waits: waits(("read", "S", 50), ("fsync", "D", 140), ("read", "S", 10))
        )
        #expect(diagnosis.verdict == .diskWait && diagnosis.summary.contains("fsync(2)"))
        let other = Diagnosis(window: window(cpu: 5), state: "S", waits: waits(("fsync", "D", 50), ("read", "S", 140)))
        #expect(other.verdict == .blocked && other.summary.contains("read(2)"))
    }

    @Test("The state D is a disk wait, except for waits for the memory map or a child")
    func stateD() {
        #expect(Diagnosis(window: window(), state: "D", waits: waits(("read", "D", 200))).verdict == .diskWait)
        for call in ["vfork", "mmap", "munmap"] where !SystemCall.numbers(of: [call]).isEmpty {
            #expect(Diagnosis(window: window(), state: "D", waits: waits((call, "D", 200))).verdict == .blocked)
        }
    }

    @Test("A call on a network file system is a disk wait that names it, also asleep in state S")
    func networkFileSystem() {
        let file = StallReport.Descriptor(
            number: 5,
            kind: .file,
            target: "/mnt/a/b",
            isDeleted: false,
            fileSystem: "nfs4",
            isRemote: true
        )
        let diagnosis = Diagnosis(window: window(), state: "S", waits: waits(("read", "S", 200)), descriptors: [file])
        #expect(diagnosis.verdict == .diskWait)
        #expect(
            diagnosis.summary
                == "The thread waited for the network file system nfs4 in read(2) on descriptor 5 (/mnt/a/b)."
        )
    }

    @Test("Delay accounting takes precedence over the samples")
    func delayAccounting() {
        let diagnosis = Diagnosis(window: window(blockIO: 150), state: "S", waits: waits(("pread64", "S", 200)))
        #expect(diagnosis.verdict == .diskWait)
        #expect(diagnosis.summary == "The thread waited for a disk in pread64(2).", "\(diagnosis.summary)")
        let inFaults = Diagnosis(window: window(blockIO: 150), state: "S", waits: waits((nil, "S", 200)))
        #expect(inFaults.summary == "The thread waited for a disk, in page faults.")
        #expect(
            Diagnosis(window: window(blockIO: 50), state: "S", waits: waits(("pread64", "S", 200))).verdict == .blocked
        )
        // It only slept while the watcher did not run.
        let missed = window(cpu: 50, delay: 50).leavingOut(.milliseconds(100), unobserved: .milliseconds(100))
        #expect(Diagnosis(window: missed, state: "S", waits: waits(("read", "S", 200))).verdict == .blocked)
    }

    @Test("Page faults that read from a disk, whether a sample shows them or not")
    func pageFaults() {
        #expect(Diagnosis(window: window(), state: "D", waits: waits((nil, "D", 200))).verdict == .diskWait)
        #expect(Diagnosis(window: window(faults: 40), state: "R", waits: waits((nil, "R", 200))).verdict == .diskWait)
        #expect(Diagnosis(window: window(), state: "S", waits: waits()).verdict == .unknown)
    }
}

@Suite("The kernel's counts of a thread")
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

    @Test("Where the kernel does not count a thread's time in nanoseconds, its ticks are taken")
    func ticks() throws {
        let stat = "12 (a) R 1 2 3 4 5 6 7 8 9 10 25 4"
        #expect(try #require(ThreadEvidence(stat: stat, schedstat: "0 0 0\n")).cpuNanoseconds == 290_000_000)
        #expect(try #require(ThreadEvidence(stat: stat, schedstat: "0 7 1\n")).cpuNanoseconds == 0)
        let most = "12 (a) R 1 2 3 4 5 6 7 8 9 10 \(UInt64.max) \(UInt64.max)"
        #expect(try #require(ThreadEvidence(stat: most, schedstat: "0 0 0\n")).cpuNanoseconds == .max)
    }

    @Test(
        "A name may begin or end with what Swift takes for a part of a parenthesis",
        arguments: ["\u{301}x", "x\u{600}"]
    )
    func boundName(_ name: String) throws {
        let stat = "12 (\(name)) D 1 2 3 4 5 6 7 8 93 10"
        let evidence = try #require(ThreadEvidence(stat: stat, schedstat: "1 2 3"))
        #expect(evidence.name == name && evidence.state == "D" && evidence.majorFaults == 93)
    }

    @Test("Text in another form gives no evidence", arguments: ["", "12 a R", "12 (a", "12 ) ( R", "12 (a) R 1 2"])
    func malformed(_ stat: String) {
        #expect(ThreadEvidence(stat: stat, schedstat: "1 2 3") == nil)
        #expect(ThreadEvidence(stat: "1 (a) R 1 2 3 4 5 6 7 8 9 10", schedstat: stat) == nil)
    }

    @Test("A living thread can be read; a missing one cannot")
    func real() {
        #expect(ThreadEvidence.read(threadID: Int32(getpid()))?.state != nil)
        #expect(ThreadEvidence.read(threadID: -1) == nil)
    }
}

extension WaitSite {
    /// A site of which nothing is read.
    init(call: SystemCall, state: Character?, decoded: DecodedCall, descriptors: [DescriptorReading] = []) {
        self.init(SystemCall(number: -1, arguments: []), state: state) { _, _ in nil }
        (self.call, self.decoded, self.descriptors) = (call, decoded, descriptors)
    }
}
