import Foundation
import TestSupport
import Testing

@testable import Symbolication

/// With Debian's debuginfod on the loopback interface. The benchmark
/// program makes the queries, because the client reads its environment.
@Suite("A debuginfod server", .timeLimit(.minutes(10)))
struct DebugInfoServerTests {
    @Test("It gives functions, lines and inlined calls for a stripped program, by its build id")
    func found() throws {
        let workshop = try Workshop()
        try workshop.makeProgram()
        let place = try workshop.innermostPlace(of: "program")
        let id = try #require(try workshop.buildID(of: "program"))
        try workshop.run("mkdir", ["served"])
        try workshop.run("objcopy", ["--only-keep-debug", "program", "served/program.debug"])
        try workshop.run("strip", ["program"])
        let server = try DebuginfodProcess(serving: "served", in: workshop)
        let request = "\(workshop.path("program")),\(id),\(String(place, radix: 16))"
        let output = try ask([request], server.url, workshop)
        #expect(output.contains("inlined\tinnermost"))
        #expect(output.contains("program.c:2"))
        #expect(try ask([request], nil, workshop).contains("no symbol file was found"))
    }

    @Test(
        "One without the file, a missing or a silent one is a reason, in time",
        arguments: ["none", "closed", "silent"]
    )
    func missing(kind: String) throws {
        let workshop = try Workshop()
        try workshop.makeProgram()
        let id = try #require(try workshop.buildID(of: "program"))
        try workshop.run("strip", ["program"])
        try workshop.run("mkdir", ["served"])
        let server = kind == "none" ? try DebuginfodProcess(serving: "served", in: workshop) : nil
        let silent = kind == "silent" ? try SilentServer() : nil
        let url = server?.url ?? silent?.url ?? "http://127.0.0.1:9"
        // The others answer; on a busy machine later than within two seconds.
        let patience = kind == "silent" ? "2" : "60"
        let output = try ask(["\(workshop.path("program")),\(id),1139"], url, workshop, patience: patience)
        #expect(output.contains("could not be had from the debuginfod server"))
        if kind == "none" { #expect(output.contains("(it has none)")) }
        if kind == "silent" { #expect(output.contains("no answer in time")) }
        _ = silent
    }

    private func ask(_ requests: [String], _ url: String?, _ workshop: Workshop, patience: String = "60") throws
        -> String
    {
        var environment = ["DEBUGINFOD_CACHE_PATH": workshop.path("cache"), "PATIENCE": patience]
        environment["DEBUGINFOD_URLS"] = url ?? ""
        return try workshop.run(Workshop.benchmark, requests, environment: environment)
    }
}

/// debuginfod(8) for one directory, ended with the test.
private final class DebuginfodProcess {
    private(set) var url = ""
    private var process = Process()

    init(serving folder: String, in workshop: Workshop) throws {
        // Another process may take the port before the server does: then it ends.
        for _ in 0..<5 where url.isEmpty {
            if !(try start(serving: folder, in: workshop)) { url = "" }
        }
        try #require(!url.isEmpty)
    }

    /// - Returns: Whether it is ready; false if it has ended.
    private func start(serving folder: String, in workshop: Workshop) throws -> Bool {
        let port = try Self.unusedPort()
        url = "http://127.0.0.1:\(port)"
        process = Process()
        process.executableURL = URL(filePath: "/usr/bin/debuginfod")
        process.arguments = [
            "-F", "-p", "\(port)", "-d", workshop.path("index.sqlite"), "-t", "1", workshop.path(folder),
        ]
        process.standardOutput = FileHandle.nullDevice
        process.standardError = FileHandle.nullDevice
        try process.run()
        // It is ready when its counters show that it has looked at the files: none, if there are none. Beside other load that takes long; the
        // limit only ends a hang.
        let isEmpty = try FileManager.default.contentsOfDirectory(atPath: workshop.path(folder)).isEmpty
        let isScanned = "thread_work_total{role=\"\(isEmpty ? "traverse" : "scan")\"}"
        var isReady = false
        for _ in 0..<1800 where !isReady {
            guard process.isRunning else { return false }
            let metrics = (try? workshop.run("curl", ["-s", url + "/metrics"])) ?? ""
            isReady = metrics.contains(isScanned) && !metrics.contains("thread_work_pending{role=\"scan\"} 1")
            if !isReady { usleep(100_000) }
        }
        try #require(isReady)
        return process.isRunning
    }

    /// A port that no process has, and that the kernel gives to none by itself.
    private static func unusedPort() throws -> Int {
        for _ in 0..<100 {
            let port = Int.random(in: 20_000..<30_000)
            let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
            defer { close(descriptor) }
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = UInt16(port).bigEndian
            let length = socklen_t(MemoryLayout<sockaddr_in>.size)
            let isBound = unsafe withUnsafeMutablePointer(to: &address) { pointer in
                unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    unsafe bind(descriptor, $0, length) == 0
                }
            }
            if isBound { return port }
        }
        throw CocoaError(.fileNoSuchFile)
    }

    deinit {
        process.killIfRunning()
        process.waitUntilExit()
    }
}

/// Accepts connections and sends nothing.
private final class SilentServer {
    let url: String
    private let descriptor: Int32

    init() throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let descriptor = self.descriptor
        let result = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe bind(descriptor, address, length) | listen(descriptor, 8)
                    | getsockname(descriptor, address, &length)
            }
        }
        url = "http://127.0.0.1:\(UInt16(bigEndian: address.sin_port))"
        try #require(result == 0)
    }

    deinit { close(descriptor) }
}
