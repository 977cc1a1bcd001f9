import Glibc
import Testing

@testable import StallReports

@Suite("Process liveness", .timeLimit(.minutes(10)))
struct LivenessTests {
    private let here = HostIdentity.current()
    private let me = ProcessIdentity.current()
    private let liveness = ProcessLiveness()

    @Test("this process is alive and knows its start")
    func alive() {
        #expect(liveness.status(of: me, on: here) == .alive)
        #expect(me.startTicks != nil && me.pidNamespace != nil && me.executable != nil && here.bootID != nil)
        #expect(me.startedAt.map { $0 < .now() } == true)
    }

    @Test("an id that another process has now is dead")
    func numberGivenAgain() {
        var other = me
        other.startTicks = 1
        #expect(liveness.status(of: other, on: here) == .dead)
        other.pid = 0
        #expect(liveness.status(of: other, on: here) == .dead)
    }

    @Test("another boot of this host is dead; another host or pid namespace cannot be seen")
    func elsewhere() {
        var host = here
        host.bootID = "00000000-0000-0000-0000-000000000000"
        #expect(liveness.status(of: me, on: host) == .dead)
        host.name = "elsewhere"
        #expect(liveness.status(of: me, on: host) == .unknown)
        host.bootID = nil
        #expect(liveness.status(of: me, on: host) == .unknown)
        var process = me
        process.startTicks = 1
        process.pidNamespace = 1
        #expect(liveness.status(of: process, on: here) == .unknown)
        process.pidNamespace = nil
        #expect(liveness.status(of: process, on: here) == .unknown)
    }

    @Test("a zombie is dead, and so is a reaped process")
    func zombie() throws {
        let child = try ChildProcess()
        let identity = try child.identity()
        #expect(liveness.status(of: identity, on: here) == .alive)
        child.killLeavingZombie()
        #expect(liveness.status(of: identity, on: here) == .dead)
        child.reap()
        #expect(liveness.status(of: identity, on: here) == .dead)
    }

    @Test("a process whose first thread has ended is alive as long as another one is")
    func endedFirstThread() {
        let ended = { (state: String, threads: Int) in
            let fields = (3...52).map { $0 == 3 ? state : $0 == 20 ? "\(threads)" : "\($0)" }
            return ProcessStat("7 (a) \(fields.joined(separator: " "))")?.hasEnded
        }
        #expect(ended("Z", 2) == false && ended("S", 1) == false)
        #expect(ended("Z", 1) == true && ended("X", 1) == true)
        // The kernel has taken its list of threads apart.
        #expect(ended("Z", 0) == true)
    }

    @Test("a process name full of brackets and spaces does not shift the fields")
    func hostileName() {
        let fields = (3...52).map { $0 == 3 ? "S" : "\($0)" }.joined(separator: " ")
        #expect(ProcessStat("7 (a) Z (b) 1 2) \(fields)")?.startTicks == 22)
        #expect(ProcessStat("7 (a) Z (b) 1 2) \(fields)")?.state == "S")
        #expect(ProcessStat("7 (a) S 1 2") == nil)
        #expect(ProcessStat("") == nil)
    }

    @Test("The file that is mapped at an address, with blanks in its path")
    func mappedFile() {
        let maps = """
            1000-2000 r--p 00000000 fe:00 11                         /usr/lib/ld-linux.so.2
            2000-3000 r-xp 00001000 fe:00 12                         /srv/my  shop/server (deleted)
            3000-4000 rw-p 00000000 00:00 0 
            5000-6000 rw-p 00000000 00:00 0                          [stack]
             
            ffff
            """
        #expect(ProcessIdentity.mappedFile(at: 0x1fff, in: maps) == "/usr/lib/ld-linux.so.2")
        #expect(ProcessIdentity.mappedFile(at: 0x2000, in: maps) == "/srv/my  shop/server (deleted)")
        for address: UInt in [0, 0x3000, 0x4000, 0x5000, 0xffff] {
            #expect(ProcessIdentity.mappedFile(at: address, in: maps) == nil)
        }
        #expect(ProcessIdentity.mappedFile(at: 0, in: "") == nil)
    }

    @Test("The loader's entry for a program is found on the stack, wherever the variables end")
    func programHeaders() {
        let arguments: [UInt] = [3, 0x7ff1, 0x7ff2, 0x7ff3, 0], variables: [UInt] = [0x7ff4, 0, 0x7ff5, 0]
        let vector: [UInt] = [33, 0x7fe0, 3, 0x5000, 4, 56, 5, 13, 7, 0, 0, 0]
        #expect(ProcessIdentity.headers(in: (arguments + variables + vector)[...]) == 0x5000)
        #expect(ProcessIdentity.headers(in: (arguments + variables + vector.prefix(6))[...]) == nil)
        #expect(ProcessIdentity.headers(in: (arguments + variables)[...]) == nil)
        for count in 0...5 { #expect(ProcessIdentity.headers(in: arguments.prefix(count)) == nil) }
    }

    @Test(
        "A process has the same start, to one tick, in a time namespace that moves the clock since boot",
        arguments: [("5000", "0"), ("5000", "7000000"), ("-50000", "3000000"), ("-2000000", "0")]
    )
    func timeNamespace(_ offset: (seconds: String, nanoseconds: String)) throws {
        let namespace = TimeNamespace(offsets: "monotonic  12  0\nboottime  \(offset.seconds)  \(offset.nanoseconds)\n")
        #expect(namespace.monotonicNs == 12_000_000_000)
        // As the kernel computes them: the sum can be negative, and is divided as an unsigned number.
        let start: Int64 = 1_234_567_891_234_567
        let moved = start + namespace.boottimeNs
        func stat(_ ticks: UInt64) -> String {
            "7 (a) S " + (4...52).map { $0 == 22 ? "\(ticks)" : "0" }.joined(separator: " ")
        }
        let outside = try #require(ProcessStat(stat(UInt64(start) / 10_000_000)))
        let inside = try #require(
            ProcessStat(stat(UInt64(bitPattern: moved) / 10_000_000), seenFrom: namespace)
        )
        #expect(inside.hasStart(outside.startTicks) && outside.hasStart(inside.startTicks))
        #expect(!inside.hasStart(outside.startTicks + 2))
    }

    @Test("Outside of time namespaces no clock is moved, and a text of another form moves none")
    func noTimeNamespace() {
        for text in ["", "monotonic 0 0\nboottime 0 0\n", "monotonic\nboottime x 1\n1 5 5"] {
            #expect(TimeNamespace(offsets: text) == TimeNamespace())
        }
        let far = TimeNamespace(offsets: "boottime \(Int64.max) \(Int64.max)")
        let fields = (4...52).map { _ in "\(UInt64.max)" }.joined(separator: " ")
        #expect(ProcessStat("7 (a) S \(fields)", seenFrom: far) != nil)
    }
}

extension ProcessLiveness {
    /// Sees no process, and so treats none as dead.
    static let blind = ProcessLiveness(host: HostIdentity(name: "elsewhere"), pidNamespace: nil)
}
