import Dispatch
import Foundation
import Glibc
import Synchronization

/// A program whose task pool does as it is told, and in which nothing of ours is linked: `pool-target`. It reads orders line by line
/// (`compute 400`), carries each out, and prints `DID` with the order's name, and the latest begin and the earliest end of its jobs on
/// CLOCK_MONOTONIC.
@main
struct PoolTarget {
    static func main() {
        say("READY")
        while let line = readLine() {
            let words = line.split(separator: " ")
            guard words.count == 2, let milliseconds = Int(words[1]), let order = Order(rawValue: String(words[0]))
            else {
                say("UNKNOWN \(line)")
                continue
            }
            let (begin, end) = order.carryOut(milliseconds)
            say("DID \(order.rawValue) \(begin) \(end)")
        }
    }

    private static func say(_ text: String) {
        FileHandle.standardOutput.write(Data((text + "\n").utf8))
    }
}

private enum Order: String {
    /// Each worker computes.
    case compute
    /// Each worker sleeps in one system call.
    case sleep
    /// Each worker sleeps for a millisecond, again and again.
    case nap
    /// One worker sleeps and holds a lock, for which the others wait.
    case lock
    /// One worker more than there are processors computes in turn: jobs of a few milliseconds, and no worker is ever free.
    case short
    /// One worker computes; the others take short jobs.
    case long
    /// Blocks of a global queue compute, on the same threads that run Swift's jobs.
    case blocks
    /// Tasks that are suspended.
    case suspended

    func carryOut(_ milliseconds: Int) -> (begin: UInt64, end: UInt64) {
        let jobs = Jobs()
        switch self {
        case .compute: jobs.run(Jobs.width) { computeInAJob(milliseconds) }
        case .sleep: jobs.run(Jobs.width) { sleepInAJob(milliseconds) }
        case .nap: jobs.run(Jobs.width) { napInAJob(milliseconds) }
        case .lock: jobs.run(Jobs.width) { holdTheLock(milliseconds) }
        case .short: jobs.runShortOnes(Jobs.width + 1, for: milliseconds)
        case .long:
            jobs.start(1) { computeInAJob(milliseconds) }
            jobs.runShortOnes(1, for: milliseconds)
        case .blocks:
            let group = DispatchGroup()
            for _ in 0..<(Jobs.width + 1) {
                DispatchQueue.global().async(group: group) { computeInABlock(milliseconds) }
            }
            group.wait()
        case .suspended: jobs.suspend(Jobs.width + 2, for: milliseconds)
        }
        return jobs.wait()
    }
}

/// Jobs that begin at about the same time.
private final class Jobs: Sendable {
    /// The number of jobs that Swift's pool runs at once on this machine.
    static let width = max(1, min(sysconf(Int32(_SC_NPROCESSORS_CONF)), ProcessInfo.processInfo.activeProcessorCount))

    private let group = DispatchGroup()
    private let span = Mutex((begin: UInt64(0), end: UInt64.max))

    func run(_ count: Int, _ work: @escaping @Sendable () -> Void) { start(count, work) }

    func start(_ count: Int, _ work: @escaping @Sendable () -> Void) {
        for _ in 0..<count {
            group.enter()
            Task.detached(priority: .medium) { [self] in
                note(work)
                group.leave()
            }
        }
    }

    func runShortOnes(_ count: Int, for milliseconds: Int) {
        let end = now() + UInt64(milliseconds) * 1_000_000
        for _ in 0..<count {
            group.enter()
            Task.detached(priority: .medium) { [self] in
                while now() < end {
                    computeInAJob(3)
                    await Task.yield()
                }
                group.leave()
            }
        }
    }

    func suspend(_ count: Int, for milliseconds: Int) {
        for _ in 0..<count {
            group.enter()
            Task.detached(priority: .medium) { [self] in
                try? await Task.sleep(for: .milliseconds(milliseconds))
                group.leave()
            }
        }
    }

    func wait() -> (begin: UInt64, end: UInt64) {
        group.wait()
        return span.withLock { $0 }
    }

    private func note(_ work: () -> Void) {
        let begin = now()
        work()
        let end = now()
        span.withLock { $0 = (max($0.begin, begin), min($0.end, end)) }
    }
}

private func now() -> UInt64 { DispatchTime.now().uptimeNanoseconds }

@inline(never)
private func computeInAJob(_ milliseconds: Int) { compute(milliseconds) }

@inline(never)
private func computeInABlock(_ milliseconds: Int) { compute(milliseconds) }

@inline(never)
private func compute(_ milliseconds: Int) {
    let end = now() + UInt64(milliseconds) * 1_000_000
    while now() < end { total.add(1, ordering: .relaxed) }
}

private let total = Atomic(0)

@inline(never)
private func sleepInAJob(_ milliseconds: Int) {
    var time = timespec(tv_sec: milliseconds / 1_000, tv_nsec: milliseconds % 1_000 * 1_000_000)
    unsafe nanosleep(&time, nil)
}

@inline(never)
private func napInAJob(_ milliseconds: Int) {
    let end = now() + UInt64(milliseconds) * 1_000_000
    while now() < end { usleep(1_000) }
}

private let theLock = Mutex(0)

@inline(never)
private func holdTheLock(_ milliseconds: Int) {
    theLock.withLock { count in
        // Only the first one holds the pool up: when it lets go, a worker is free.
        if count == 0 { sleepInAJob(milliseconds) }
        count = (count + 1) % Jobs.width
    }
}
