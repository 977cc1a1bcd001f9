import Foundation
import Glibc
import RunLoopKit
import StallReports
import TestSupport
import Testing

/// Who waited for a server.
extension WatchCommandTests {
    @Test(
        "Waiting clients are counted when a stall is found; show and tail print them",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func victims() throws {
        let target = try LoopTarget()
        try target.tell("listen")
        let port = try #require(UInt16(try target.answer()[1]))
        let accepted = try (0..<3).map { _ in try Client(port) }
        for client in accepted { #expect(try client.ask("hello")) }
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        // Two existing connections send a request; five new ones arrive.
        let waiting = try inAStall(of: target) {
            for client in accepted.prefix(2) { client.send("hello?") }
            return try (0..<5).map { _ in try Client(port) }
        }
        usleep(150_000)
        let report = try #require(try watch.finish().first)
        let victims = try #require(report.victims)
        #expect(victims.unread == 2 && victims.unreadBytes == 12 && victims.unaccepted == 5 && victims.clients == 7)
        let text = "at least 7 clients waited: 2 connections with 12 bytes unread, 5 not accepted"
        #expect(try CommandRun("show", report.id.description, fixture.path).output.contains(text))
        #expect(try watch.line()?.contains("sleep_until") == true)
        #expect(try (0..<2).compactMap { _ in try watch.line() }.contains { $0.contains(text) })
        withExtendedLifetime(waiting) {}
    }

    @Test(
        "The waiting clients of a polling loop are counted: at its sockets and in an epoll set among them",
        .repeatedWhenLate(by: .milliseconds(40))
    )
    func victimsOfPoll() throws {
        let target = try LoopTarget("polling")
        try target.tell("listen")
        let port = try #require(UInt16(try target.answer()[1]))
        let accepted = try (0..<2).map { _ in try Client(port) }
        for client in accepted { #expect(try client.ask("hello")) }
        let watch = try watch("\(target.pid)")
        try watch.waitForLoops(1)
        // Since then it has waited for the listener.
        _ = try target.counts()
        usleep(110_000)
        let waiting = try inAStall(of: target) {
            accepted[0].send("hello?")
            return try (0..<3).map { _ in try Client(port) }
        }
        usleep(150_000)
        let report = try #require(try watch.finish().first)
        let victims = try #require(report.victims)
        #expect(victims.unread == 1 && victims.unaccepted == 3 && victims.clients == 4, "\(victims)")
        withExtendedLifetime(waiting) {}
    }

    /// Does something while the target sleeps, until 250 ms after which clients that wait are counted. Notes how long that took: this
    /// process may get no processor although the witness of the machine does.
    private func inAStall<Result>(of target: LoopTarget, _ body: () throws -> Result) throws -> Result {
        try target.tell("sleep 600")
        let begin = MonotonicInstant.now
        usleep(50_000)
        let result = try body()
        LatenessWitness.note(begin.duration(to: .now) - .milliseconds(50))
        _ = try target.answer()
        return result
    }
}

/// A client of a server on this machine.
private final class Client {
    private let socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)

    init(_ port: UInt16) throws {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        let result = unsafe withUnsafePointer(to: &address) { address in
            unsafe address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe connect(socket, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        try #require(result == 0)
    }

    deinit { close(socket) }

    func send(_ text: String) { #expect(unsafe Glibc.write(socket, text, text.utf8.count) == text.utf8.count) }

    /// Whether it gets an answer.
    func ask(_ text: String) throws -> Bool {
        send(text)
        var bytes = [UInt8](repeating: 0, count: 64)
        let count = unsafe bytes.withUnsafeMutableBytes { unsafe read(socket, $0.baseAddress, $0.count) }
        return count == text.utf8.count
    }
}
