public import Dispatch
import RunLoopKit

/// Computes, as a library of somebody else's would that an asynchronous function calls. Stays on the caller's actor.
public func computeAsLibrary(milliseconds: Int, isolation: isolated (any Actor)? = #isolation) async -> Int {
    computeInLibrary(milliseconds: milliseconds)
}

/// Calls `body` again and again for so long.
@inline(never)
public func repeatInLibrary(milliseconds: Int, _ body: (Int) -> Int) -> Int {
    let end = MonotonicInstant.now.advanced(by: .milliseconds(milliseconds))
    var sum = 1
    while MonotonicInstant.now < end { sum = sum &+ body(sum) }
    return sum
}

/// Reads the clock rarely: a look at it finds it computing.
@inline(never)
public func computeInLibrary(milliseconds: Int) -> Int {
    repeatInLibrary(milliseconds: milliseconds) { start in
        (0..<10_000).reduce(start) { $0 &* 31 &+ $1 }
    }
}

/// Work that is nobody's own.
public func signalling(_ done: DispatchSemaphore, after milliseconds: Int) -> @Sendable () -> Void {
    {
        _ = computeInLibrary(milliseconds: milliseconds)
        done.signal()
    }
}
