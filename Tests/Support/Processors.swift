import Glibc

/// Makes the calling thread run on one CPU, if that is permitted.
func confine(to processor: Int) {
    // The C library's module lacks this function.
    typealias SetAffinity = @convention(c) (pid_t, Int, UnsafeRawPointer) -> Int32
    guard let function = unsafe dlsym(nil, "sched_setaffinity") else { return }
    let masks = [UInt64(1) << UInt64(processor % 64)]
    _ = unsafe unsafeBitCast(function, to: SetAffinity.self)(0, MemoryLayout<UInt64>.size, masks)
}
