import Foundation
import Glibc
import RunLoopKit
import Synchronization
import Testing

@testable import StallMonitor

@Suite("The monitor's own threads", .timeLimit(.minutes(10)))
struct MonitorThreadTests {
    /// If a host's handler ran on the watchdog it would keep it from its work, and might wait for what it has
    /// stalled.
    @Test("they take none of the host's signals, except those that a thread causes itself")
    func signals() throws {
        let mask = Mutex<UInt64?>(nil)
        let thread = try MonitorThread(name: "masked") {
            mask.withLock { $0 = Self.blockedSignals() }
        }
        #expect(thread.join(by: MonotonicInstant.now.advanced(by: .seconds(30))))
        let blocked = try #require(mask.withLock { $0 })
        let isBlocked = { (signal: Int32) in blocked >> UInt64(signal - 1) & 1 != 0 }
        #expect([SIGPROF, SIGALRM, SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1, SIGUSR2, 34, 64].allSatisfy(isBlocked))
        #expect(![SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV, SIGSYS, SIGTRAP].contains(where: isBlocked))
    }

    @Test("every caller that waits for a thread's end learns of it; what only the thread held is released before")
    func ends() throws {
        final class Held: Sendable {}
        let mayEnd = TickSemaphore()
        let waiters = Mutex(0)
        var held: Held? = Held()
        weak let seen = held
        let thread = try MonitorThread(name: "ends") { [held] in withExtendedLifetime(held) { mayEnd.wait() } }
        held = nil
        #expect(!thread.join(by: .now) && seen != nil)
        let others = try (0..<2).map { _ in
            try MonitorThread(name: "waits") {
                if thread.join(by: .now + .seconds(60)) { waiters.withLock { $0 += 1 } }
            }
        }
        mayEnd.signal()
        #expect(thread.join(by: .now + .seconds(60)) && seen == nil)
        #expect(others.allSatisfy { $0.join(by: .now + .seconds(60)) } && waiters.withLock { $0 } == 2)
        #expect(thread.join(by: .now))
    }

    @Test("a wait for many signals takes as much of the patience as it lasts; one without a signal takes all of it")
    func patience() {
        let semaphore = TickSemaphore()
        var patience = Duration.seconds(2)
        var taken = 0
        // As many as reports that wait for a disk, which then takes them at once.
        for _ in 0..<256 {
            semaphore.signal()
            if semaphore.wait(within: &patience) { taken += 1 }
        }
        #expect(taken == 256 && patience > .zero)
        patience = .milliseconds(50)
        let isSignalled = semaphore.wait(within: &patience)
        #expect(!isSignalled && patience <= .zero)
    }

    @Test("a thread does not wait for its own end")
    func ownEnd() throws {
        let own = Mutex<MonitorThread?>(nil)
        let (mayJoin, hasTried) = (TickSemaphore(), TickSemaphore())
        let hasEnded = Mutex<Bool?>(nil)
        let thread = try MonitorThread(name: "joins-itself") {
            mayJoin.wait()
            let joined = own.withLock { $0 }?.join(by: .now + .seconds(600))
            hasEnded.withLock { $0 = joined }
            hasTried.signal()
        }
        own.withLock { $0 = thread }
        mayJoin.signal()
        #expect(hasTried.wait(until: .now + .seconds(60)) && hasEnded.withLock { $0 } == false)
        #expect(thread.join(by: .now + .seconds(60)))
    }

    private static func blockedSignals() -> UInt64? {
        let status = try? String(contentsOfFile: "/proc/thread-self/status", encoding: .utf8)
        let line = status?.split(separator: "\n").first { $0.hasPrefix("SigBlk:") }
        return line.flatMap { UInt64($0.dropFirst(7).trimmingPrefix("\t"), radix: 16) }
    }
}

@Suite("The lines on standard error")
struct StandardErrorTests {
    @Test("A line for which there is no reader any more is dropped, without a signal that would end the process")
    func lostReader() {
        var ends: [Int32] = [-1, -1]
        #expect(unsafe pipe(&ends) == 0)
        StandardError.write("line\n", to: ends[1])
        var bytes = [UInt8](repeating: 0, count: 16)
        #expect(unsafe read(ends[0], &bytes, bytes.count) == 5)
        close(ends[0])
        StandardError.write("line\n", to: ends[1])
        close(ends[1])
    }

    @Test("No line is written to a database or a connection that has the number of a standard error that was closed")
    func reusedNumber() throws {
        let path = "/tmp/standard-error-\(getpid())-\(UInt64.random(in: 0...UInt64.max))"
        defer { unsafe unlink(path) }
        for (flags, isForLines) in [(O_RDWR, false), (O_WRONLY, true), (O_RDWR | O_APPEND, true)] {
            let file = unsafe open(path, flags | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
            try #require(file >= 0)
            StandardError.write("line\n", to: file)
            #expect(try String(contentsOfFile: path, encoding: .utf8) == (isForLines ? "line\n" : ""))
            close(file)
        }
        var ends: [Int32] = [-1, -1]
        try #require(unsafe socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0, &ends) == 0)
        StandardError.write("line\n", to: ends[1])
        var byte: UInt8 = 0
        #expect(unsafe recv(ends[0], &byte, 1, Int32(MSG_DONTWAIT)) == -1)
        for end in ends { close(end) }
    }
}
