import Dispatch

/// Signals that a command handles itself. Those that arrive after `init` has returned are handled: libdispatch registers a source on a
/// thread of its own, and until then a signal would be lost if it were ignored meanwhile.
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
        sources = numbers.map { number in
            let source = DispatchSource.makeSignalSource(signal: number, queue: .global(qos: qos))
            source.setRegistrationHandler { registered.signal() }
            source.setEventHandler { handle(number) }
            source.activate()
            return source
        }
        for _ in numbers { _ = registered.wait(timeout: .now() + .seconds(5)) }
    }
}
