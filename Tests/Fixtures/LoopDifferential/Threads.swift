import Dispatch
import Glibc
import Synchronization

/// A thread that can be joined after everything that ends with it has ended, including its run loop.
final class LoopThread {
    private var handle = pthread_t()

    init(_ body: @escaping @Sendable () -> Void) {
        let work = unsafe Unmanaged.passRetained(Work(body)).toOpaque()
        let failure = unsafe pthread_create(
            &handle,
            nil,
            { argument in
                if let argument = unsafe argument {
                    unsafe Unmanaged<Work>.fromOpaque(argument).takeRetainedValue().body()
                }
                return nil
            },
            work
        )
        precondition(failure == 0, "pthread_create: errno \(failure)")
    }

    func join() { pthread_join(handle, nil) }

    private final class Work: Sendable {
        let body: @Sendable () -> Void

        init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
}

/// Executes work while the caller waits.
final class HelperThread {
    private let exchange = Exchange()
    private let thread: LoopThread

    init(kernel: SimulatedKernel) {
        let entrance = Entrance(kernel)
        thread = LoopThread { [exchange] in
            entrance.kernel.enter()
            exchange.serve()
            SimulatedKernel.leave()
        }
    }

    /// Returns when the work is done. The two threads never run at the same time.
    func perform(_ work: @escaping @Sendable () -> Void) { exchange.perform(work) }

    func end() {
        exchange.perform(nil)
        thread.join()
    }

    /// Unchecked: only one of the two threads accesses the kernel's state at a time.
    private final class Entrance: @unchecked Sendable {
        let kernel: SimulatedKernel

        init(_ kernel: SimulatedKernel) { self.kernel = kernel }
    }

    private final class Exchange: Sendable {
        private let work = Mutex<(@Sendable () -> Void)?>(nil)
        private let given = DispatchSemaphore(value: 0)
        private let done = DispatchSemaphore(value: 0)

        func perform(_ work: (@Sendable () -> Void)?) {
            self.work.withLock { $0 = work }
            given.signal()
            done.wait()
        }

        func serve() {
            while true {
                given.wait()
                let work = work.withLock { $0.take() }
                work?()
                done.signal()
                if work == nil { return }
            }
        }
    }
}
