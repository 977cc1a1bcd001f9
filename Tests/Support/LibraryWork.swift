public import Dispatch
import RunLoopKit

/// Computes in a library function that an asynchronous function calls. Stays on the caller's actor.
public func computeAsLibrary(milliseconds: Int, isolation: isolated (any Actor)? = #isolation) async -> Int {
    computeInLibrary(milliseconds: milliseconds)
}

/// Calls `body` repeatedly for the given time.
@inline(never)
public func repeatInLibrary(milliseconds: Int, _ body: (Int) -> Int) -> Int {
    let end = MonotonicInstant.now.advanced(by: .milliseconds(milliseconds))
    var sum = 1
    while MonotonicInstant.now < end { sum = sum &+ body(sum) }
    return sum
}

/// Reads the clock rarely, so that a sample finds it computing.
@inline(never)
public func computeInLibrary(milliseconds: Int) -> Int {
    repeatInLibrary(milliseconds: milliseconds) { start in
        (0..<10_000).reduce(start) { $0 &* 31 &+ $1 }
    }
}

/// Work without own code.
public func signalling(_ done: DispatchSemaphore, after milliseconds: Int) -> @Sendable () -> Void {
    {
        _ = computeInLibrary(milliseconds: milliseconds)
        done.signal()
    }
}
