import Dispatch
import Glibc
import Synchronization

// Programs that test the thread sanitizer.

/// Written by two threads without synchronisation, intentionally: the sanitizer must report it.
nonisolated(unsafe) private var unguarded = 0
private let isDone = Atomic<Bool>(false)

func race() {
    start {
        unsafe unguarded += 1
        // Relaxed, which does not order anything.
        isDone.store(true, ordering: .relaxed)
    }
    unsafe unguarded += 1
    while !isDone.load(ordering: .relaxed) { sched_yield() }
    print(unsafe unguarded > 0)
}

/// Under such contention that the mutex's slow paths are taken: the sanitizer must see that they synchronise.
func contended() {
    let guarded = Mutex<[Int]>([])
    DispatchQueue.concurrentPerform(iterations: 4) { _ in
        for number in 0..<20_000 {
            guarded.withLock { numbers in
                if numbers.count > 100 { numbers = [] }
                numbers.append(number)
            }
        }
    }
    print(guarded.withLock { $0.isEmpty })
}
