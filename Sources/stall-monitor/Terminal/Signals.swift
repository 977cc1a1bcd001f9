import Dispatch
import Glibc
import StallReading
import Synchronization

/// Signals that a command handles itself. Those that arrive after `init` has returned are handled: libdispatch registers a source on a
/// thread of its own, and until then a signal would be lost if it were ignored meanwhile.
///
/// A signal that the parent has made this process ignore, as nohup(1) does, stays ignored.
final class SignalSources: @unchecked Sendable {
    // Sendable: the sources are only kept alive.
    private let sources: [any DispatchSourceSignal]

    /// - Parameter handle: Called with the number of each signal that arrives, on a thread of libdispatch.
    init(
        _ numbers: [Int32],
        qos: DispatchQoS.QoSClass = .default,
        _ handle: @escaping @Sendable (_ number: Int32) -> Void
    ) {
        let registered = DispatchSemaphore(value: 0)
        sources = numbers.filter { !SignalSources.isIgnored($0) }.map { number in
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global(qos: qos))
            source.setRegistrationHandler { registered.signal() }
            source.setEventHandler { handle(number) }
            source.activate()
            return source
        }
        for _ in sources { _ = registered.wait(timeout: .now() + .seconds(5)) }
    }

    /// Ctrl-\ ends a command that does not handle it: Swift's runtime would take it for a crash, write a backtrace, and go on.
    static func endOnQuit() {
        if !isIgnored(SIGQUIT) { signal(SIGQUIT, SIG_DFL) }
    }

    private static func isIgnored(_ number: Int32) -> Bool {
        var action = sigaction()
        guard unsafe sigaction(number, nil, &action) == 0 else { return false }
        // SIG_IGN, which Swift does not import as a value that can be compared.
        return unsafe unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == 1
    }
}

/// The first SIGINT or SIGTERM ends the run in an orderly way, the second one ends the process.
final class StopSignals {
    private let sources: SignalSources
    private let interruption = Interruption()

    var wasInterrupted: Bool { interruption.hasCome.load(ordering: .relaxed) }

    init(_ cancellation: Cancellation) {
        sources = SignalSources([SIGINT, SIGTERM]) { [interruption] number in
            if number == SIGINT { interruption.hasCome.store(true, ordering: .relaxed) }
            signal(number, SIG_DFL)
            cancellation.cancel()
        }
    }

    private final class Interruption: Sendable {
        let hasCome = Atomic(false)
    }
}
