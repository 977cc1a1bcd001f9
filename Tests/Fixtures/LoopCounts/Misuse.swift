import Glibc
import RunLoopKit
import RunLoopPorts
import Synchronization

/// Programming errors. For each of them an optimised build must print
/// on stderr what the error is, and its line if the loop knows it.
struct Misuse: Sendable {
    let name: String
    /// The line of the mistake; nil if the loop cannot know it.
    let line: UInt?
    let commit: @Sendable () -> Void

    /// - Parameter line: The line of this call, which must be the line of the mistake as well.
    init(_ name: String, line: UInt? = #line, _ commit: @escaping @Sendable () -> Void) {
        self.name = name
        self.line = line
        self.commit = commit
    }

    static let all = [
        Misuse("run-elsewhere") { onThread { EventRunLoop.main.run() } },
        Misuse("run-for-elsewhere") { onThread { EventRunLoop.main.run(for: .zero) } },
        Misuse("perform-in-no-mode") { EventRunLoop.current.perform(in: []) {} },
        Misuse("request-in-no-mode") { EventRunLoop.current.performAsSource(in: []) {} },
        Misuse("wait-in-no-mode") { _ = try? EventRunLoop.current.performAndWait(in: []) {} },
        Misuse("delay-in-no-mode") { EventRunLoop.current.perform(after: .zero, in: []) {} },
        Misuse("before-no-sleep") { EventRunLoop.current.performBeforeWaiting("key", at: []) {} },
        Misuse("join-itself") { worker?.loop.perform { worker?.join() } },
        Misuse("port-request-in-common") { _ = try? remote?.request(PortMessage(id: 1), mode: .common) },
        Misuse("trace-of-nothing") { _ = LoopTrace(of: .current, capacity: 0) },
        Misuse("activities-without-room") { _ = EventRunLoop.current.activities(limit: 0) },
        Misuse("no-such-component") { receive { _ = $0.component(1) } },
        Misuse("too-many-modes", line: nil) {
            for number in 0...65_536 { EventRunLoop.current.add(EventSource { _ in }, to: .init("\(number)")) }
        },
        Misuse("signal-handler", line: nil) { signalInHandler() },
    ]

    /// Makes the mistake, which must end the process. Without a known name it lists all mistakes.
    static func commit(_ name: String?) {
        guard let misuse = all.first(where: { $0.name == name }) else {
            for misuse in all { print("\(misuse.name) \(misuse.line ?? 0)") }
            return
        }
        misuse.commit()
        if misuse.name == "join-itself" { pause() }
    }

    private static let worker = try? WorkerThread(name: "worker")
    private static let remote = try? RemotePort(to: LocalPort { _ in })

    /// Receives one message with one component.
    private static func receive(_ handle: @escaping @Sendable (ReceivedMessage) -> Void) {
        let port = LocalPort { handle($0) }
        guard let remote = try? RemotePort(to: port) else { return }
        try? EventRunLoop.current.add(port)
        try? remote.send(PortMessage(id: 1, components: [[1]]))
        EventRunLoop.current.run(for: .seconds(10))
    }

    /// The handler signals until it has interrupted the thread in the middle of a call.
    private static func signalInHandler() {
        EventRunLoop.current.add(signalled)
        signal(SIGALRM) { _ in signalled.signal() }
        // The process may have been started with the signal blocked, as on threads of a dispatch queue.
        var alarm = sigset_t()
        unsafe sigemptyset(&alarm)
        unsafe sigaddset(&alarm, SIGALRM)
        unsafe pthread_sigmask(SIG_UNBLOCK, &alarm, nil)
        var often = itimerval(it_interval: timeval(tv_sec: 0, tv_usec: 50), it_value: timeval(tv_sec: 0, tv_usec: 50))
        unsafe setitimer(__itimer_which_t(ITIMER_REAL.rawValue), &often, nil)
        while true {
            signalled.signal()
            _ = signalled.isSignalled
            EventRunLoop.current.run(for: .zero)
        }
    }
}

/// Created before the handler uses it.
private let signalled = EventSource { _ in }
