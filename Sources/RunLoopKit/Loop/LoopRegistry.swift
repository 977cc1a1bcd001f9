internal import CRunLoopShims
internal import Glibc

/// Maps threads to their loops (R1).
enum LoopRegistry {
    static let main = EventRunLoop(main: true)

    static var current: EventRunLoop {
        if run_loop_is_main_thread() { return main }
        return existing ?? make()
    }

    /// The calling thread's loop, if it has one. Not for the main thread.
    static var existing: EventRunLoop? {
        guard let stored = unsafe pthread_getspecific(key) else { return nil }
        return unsafe Unmanaged<EventRunLoop>.fromOpaque(stored).takeUnretainedValue()
    }

    /// Ends the calling thread's loop now instead of at the thread's end. Not for the main thread.
    static func endExisting() {
        guard let loop = existing else { return }
        unsafe end(Unmanaged.passUnretained(loop))
    }

    private static func make() -> EventRunLoop {
        let loop = EventRunLoop(main: false)
        unsafe store(Unmanaged.passRetained(loop).toOpaque())
        return loop
    }

    private static func store(_ value: UnsafeMutableRawPointer?) {
        let failure = unsafe pthread_setspecific(key, value)
        require(failure == 0, "pthread_setspecific: errno \(failure); the process is out of memory")
    }

    /// The key of the threads' slots for their loops. The C library calls the destructor on each thread that ends with a loop.
    private static let key: pthread_key_t = {
        var key = pthread_key_t()
        let failure = unsafe pthread_key_create(&key) { stored in
            guard let stored = unsafe stored else { return }
            unsafe LoopRegistry.end(Unmanaged<EventRunLoop>.fromOpaque(stored))
        }
        require(failure == 0, "pthread_key_create: errno \(failure); no thread-specific keys left")
        return key
    }()

    private static func end(_ loop: Unmanaged<EventRunLoop>) {
        // The slot is empty by now. Cancel callbacks that request the current loop must get this one, not a new one.
        unsafe store(loop.toOpaque())
        unsafe loop.takeUnretainedValue().end()
        unsafe store(nil)
        unsafe loop.release()
    }
}
