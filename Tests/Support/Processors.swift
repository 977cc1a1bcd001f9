import Glibc

/// Runs a body while another thread of this process and the calling thread share one CPU: while the body runs, the
/// other thread does not. Both may use all CPUs afterwards.
public func sharingAProcessor<Result>(with thread: Int32, _ body: () throws -> Result) rethrows -> Result {
    confine(to: 0, thread: thread)
    confine(to: 0)
    defer {
        setProcessors(thread: 0, mask: .max)
        setProcessors(thread: thread, mask: .max)
    }
    return try body()
}

/// Makes a thread, or the calling thread, run on one CPU, if that is permitted.
func confine(to processor: Int, thread: Int32 = 0) { setProcessors(thread: thread, mask: 1 << UInt64(processor % 64)) }

/// The C library's module lacks this function.
private func setProcessors(thread: Int32, mask: UInt64) {
    typealias SetAffinity = @convention(c) (pid_t, Int, UnsafeRawPointer) -> Int32
    guard let function = unsafe dlsym(nil, "sched_setaffinity") else { return }
    let masks = [mask]
    _ = unsafe unsafeBitCast(function, to: SetAffinity.self)(thread, MemoryLayout<UInt64>.size, masks)
}
