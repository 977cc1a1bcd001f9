import Glibc
import RunLoopKit
import RunLoopPorts

/// A service on a worker's loop, and its clients: by name from a thread that waits in its own loop, and from tasks.
@MainActor
func useService() async throws {
    let directory = PortDirectory("/tmp/client-fixture-ports.\(getpid())")
    defer { rmdir(directory.path) }
    let worker = try WorkerThread(name: "service")
    let name = try PortName("echo")
    let seen = Seen()
    let service = try makeService(name, in: directory, seen)
    try worker.loop.add(service)
    try callFromLoop(name, in: directory)
    try await callFromTask(service, on: worker.loop)
    precondition(seen.count == 1 && worker.loop.contains(service))
    service.invalidate()
    worker.stop()
}

func makeService(_ name: PortName, in directory: PortDirectory, _ seen: Seen) throws(RunLoopError) -> LocalPort {
    var options = LocalPort.Options()
    options.accepts = { peer in peer.userID == getuid() }
    options.onDrop = { peer, reason in fatalError("\(peer.processID): \(reason)") }
    return try LocalPort(name, in: directory, options: options) { message in
        guard message.expectsReply else { return _ = seen.note(message.text) }
        do throws(RunLoopError) {
            try message.reply(PortMessage(id: message.id, text: message.text.uppercased()))
        } catch {
            switch error.code {
            case .portBecameInvalid: break
            default: fatalError("\(error)")
            }
        }
    }
}

/// On the main thread, whose loop runs during the call.
@MainActor
func callFromLoop(_ name: PortName, in directory: PortDirectory) throws(RunLoopError) {
    let port = try RemotePort(name, in: directory)
    try EventRunLoop.main.add(port)
    try port.send(PortMessage(text: "hello"), timeout: .zero)
    let reply = try port.request(PortMessage(id: 7, text: "aloud"), receiveTimeout: .seconds(20))
    precondition(reply.id == 7 && reply.text == "ALOUD" && !reply.expectsReply && port.isValid)
    precondition(
        reply.componentCount == 1 && reply.withBytes(of: 0) { $0.byteCount } == 5 && reply.peer.processID == getpid()
    )
    port.invalidate()
}

/// A task of any actor: another thread's loop or the main loop receives the reply while the task is suspended.
func callFromTask(_ service: LocalPort, on loop: EventRunLoop) async throws {
    let worker = try WorkerThread(name: "caller")
    let port = try RemotePort(to: service) { port in precondition(!port.isValid) }
    let reply = try await port.request(PortMessage(text: "from a task"), on: worker.loop)
    let other = try await port.request(PortMessage(text: "by main"), on: .main, receiveTimeout: .seconds(20))
    precondition(reply.text == "FROM A TASK" && other.text == "BY MAIN")
    port.invalidate()
    await callInvalid(port, on: worker.loop)
    worker.stop()
}

func callInvalid(_ port: RemotePort, on loop: EventRunLoop) async {
    do {
        _ = try await port.request(PortMessage(), on: loop)
        fatalError("an invalid port has sent")
    } catch {
        precondition(error.code == .portInvalid)
    }
}
