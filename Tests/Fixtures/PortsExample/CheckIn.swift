import RunLoopKit
import RunLoopPorts
import Synchronization

/// The meanings of the example's messages.
enum MessageID {
    /// Main to worker: a text to reverse. Worker to main: the reversed text.
    static let checkIn: Int32 = 100
    /// Main to worker: a text to reverse. Worker to main: the reversed text.
    static let reverse: Int32 = 101
    /// Main to worker: the end.
    static let stop: Int32 = 102
    /// Worker to main, the last message.
    static let goodbye: Int32 = 103
}

/// The main thread's side: waits for the worker's check-in, then sends commands.
final class Supervisor: Sendable {
    private let worker = Mutex<RemotePort?>(nil)
    private let commands = Mutex(["stressed", "lever"])

    func handle(_ message: ReceivedMessage) {
        switch message.id {
        case MessageID.checkIn:
            print("main: worker checked in as \(message.text)")
            worker.withLock { $0 = message.takeReplyPort() }
            sendNextCommand()
        case MessageID.reverse:
            print("main: worker answers \(message.text)")
            sendNextCommand()
        default:
            print("main: worker says goodbye")
            EventRunLoop.current.stop()
        }
    }

    private func sendNextCommand() {
        let next = commands.withLock { $0.isEmpty ? nil : $0.removeFirst() }
        let message = next.map { PortMessage(id: MessageID.reverse, text: $0) } ?? PortMessage(id: MessageID.stop)
        do {
            try worker.withLock { $0 }?.send(message)
        } catch {
            print("main: \(error)")
            EventRunLoop.current.stop()
        }
    }
}

/// The worker thread: checks in with its own port, then runs its loop until it receives the stop command.
func work(for main: RemotePort) {
    let commands = LocalPort { message in
        if message.id == MessageID.stop { return EventRunLoop.current.stop() }
        print("worker: asked to reverse \(message.text)")
        report(PortMessage(id: MessageID.reverse, text: String(message.text.reversed())), to: main)
    }
    defer { commands.invalidate() }
    do {
        try EventRunLoop.current.add(commands)
    } catch {
        return print("worker: \(error)")
    }
    var hello = PortMessage(id: MessageID.checkIn, text: "worker 1")
    hello.replyPort = commands
    report(hello, to: main)
    EventRunLoop.current.run()
    report(PortMessage(id: MessageID.goodbye), to: main)
}

private func report(_ message: PortMessage, to port: RemotePort) {
    do {
        try port.send(message)
    } catch {
        print("worker: \(error)")
    }
}

/// Main and worker exchange messages until the worker has sent goodbye.
func checkInExample() throws {
    let supervisor = Supervisor()
    let port = LocalPort { supervisor.handle($0) }
    let loop = EventRunLoop.current
    try loop.add(port)
    // Created here, so that the worker needs only this object to reach us.
    let remote = try RemotePort(to: port)
    let thread = WorkerThread { work(for: remote) }
    loop.run()
    thread.join()
    port.invalidate()
}
