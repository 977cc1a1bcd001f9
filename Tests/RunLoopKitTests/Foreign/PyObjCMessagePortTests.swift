import Glibc
import LoopTestSupport
import RunLoopKit
import RunLoopPorts
import Testing

/// The cases of PyObjC's test_cfmessageport.
@Suite(.timeLimit(.minutes(10)))
struct PyObjCMessagePortTests {
    @Test(
        "R56: the outcomes of a request are distinguishable",
        .stands(for: "PyObjC TestMessagePort.testConstants")
    )
    func outcomes() {
        let failures: Set<RunLoopError.Code> = [
            .sendTimeout, .receiveTimeout, .portInvalid, .transportError, .portBecameInvalid,
        ]
        #expect(failures.count == 5)
    }

    @Test(
        "R55: a named port is found by name while valid; its end is reported once and frees the name",
        .stands(for: "PyObjC TestMessagePort.testInteraction")
    )
    func interaction() async throws {
        let directory = try PortDirectory.temporary()
        defer { directory.remove() }
        let name = try PortName("interaction")
        let told = Counter()
        var options = LocalPort.Options()
        options.onInvalidation = { told.increment() }
        let local = try LocalPort(name, in: directory, options: options) { _ in }
        let remote = try RemotePort(name, in: directory)
        #expect(local.name?.text == "interaction")
        #expect(local.isValid && remote.isValid)
        let contained = await onLoopThread { loop in
            try? loop.add(local)
            return loop.contains(local)
        }
        #expect(contained)
        local.invalidate()
        local.invalidate()
        #expect(!local.isValid)
        #expect(told.value == 1)
        #expect { _ = try RemotePort(name, in: directory) } throws: { ($0 as? RunLoopError)?.code == .noSuchPort }
        try LocalPort(name, in: directory) { _ in }.invalidate()
    }

    @Test(
        "R56: a request to a port of the same loop is handled by the run that waits for its reply",
        .stands(for: "PyObjC TestMessagePort.testSending")
    )
    func sending() async throws {
        let directory = try PortDirectory.temporary()
        defer { directory.remove() }
        let name = try PortName("sending")
        let (received, reply) = await onLoopThread { loop in
            let received = Box<[String]>([])
            do {
                let local = try LocalPort(name, in: directory) { message in
                    received.value.append("\(message.id) \(message.text)")
                    try? message.reply(PortMessage(id: message.id, text: "hello"))
                }
                try loop.add(local, to: .default)
                let remote = try RemotePort(name, in: directory)
                let reply = try remote.request(PortMessage(id: 99, text: "message"), receiveTimeout: .seconds(30))
                local.invalidate()
                return (received.value, reply.text)
            } catch {
                return (received.value, "\(error)")
            }
        }
        #expect(received == ["99 message"])
        #expect(reply == "hello")
    }
}

extension PortDirectory {
    /// A new directory for this test.
    static func temporary() throws -> PortDirectory {
        var template = Array("/tmp/ports-XXXXXX".utf8CString)
        guard unsafe mkdtemp(&template) != nil else { throw Fixture.Failure(reason: "mkdtemp: errno \(errno)") }
        return PortDirectory(String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self))
    }

    /// Removes the directory and its contents.
    func remove() {
        guard let directory = unsafe opendir(path) else { return }
        while let entry = unsafe readdir(directory) {
            unsafe withUnsafePointer(to: &entry.pointee.d_name) { name in
                _ = unsafe name.withMemoryRebound(to: CChar.self, capacity: 256) { name in
                    unsafe unlinkat(dirfd(directory), name, 0)
                }
            }
        }
        unsafe closedir(directory)
        _ = unsafe rmdir(path)
    }
}
