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

    @Test("a process name full of brackets and spaces does not shift the fields")
    func hostileName() {
        let fields = (3...52).map { $0 == 3 ? "S" : "\($0)" }.joined(separator: " ")
        #expect(ProcessStat("7 (a) Z (b) 1 2) \(fields)")?.startTicks == 22)
        #expect(ProcessStat("7 (a) Z (b) 1 2) \(fields)")?.state == "S")
        #expect(ProcessStat("7 (a) S 1 2") == nil)
        #expect(ProcessStat("") == nil)
    }
}

extension ProcessLiveness {
    /// Sees no process, and so treats none as dead.
    static let blind = ProcessLiveness(host: HostIdentity(name: "elsewhere"), pidNamespace: nil)
}
