import Foundation

/// Serves until standard input ends. Each line there, `NAME MS`, makes the loop do something, and is answered on standard
/// output by `DID NAME BEGIN END` (CLOCK_MONOTONIC in nanoseconds). Before that it prints `READY PORT`.
///
/// - Parameter kind: `nio`, `hummingbird` or `foundation`; `idle` for 16 of SwiftNIO's loops, which do nothing.
public func serve(_ kind: String) -> Never {
    switch kind {
    case "nio": serveNIO()
    case "hummingbird": serveHummingbird()
    case "foundation": serveFoundation()
    case "idle": rest()
    default:
        say("usage: loop-server nio|hummingbird|foundation|idle")
        exit(2)
    }
}

/// Prints a line at once, also into a pipe.
func say(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = write(STDOUT_FILENO, bytes, bytes.count)
}

/// What a line orders.
struct Order: Sendable {
    let name: String
    let milliseconds: UInt64

    init?(_ line: some StringProtocol) {
        let words = line.split(separator: " ")
        guard words.count == 2, let number = UInt64(words[1]) else { return nil }
        (name, milliseconds) = (String(words[0]), number)
    }

    func end(after begin: UInt64) -> UInt64 { begin + milliseconds * 1_000_000 }

    /// Answers the order, now.
    func did(since begin: UInt64) { say("DID \(name) \(begin) \(clockTime())") }

    /// Works alike on every loop: a stall in one callout. Reports an unknown order.
    func stall() {
        let begin = clockTime()
        guard let stall = Stall(rawValue: name) else {
            say("DID NOT \(name)")
            return
        }
        stall.make(milliseconds)
        did(since: begin)
    }
}

/// Calls `obey` for each order except those for the task pool, until standard input ends.
func readOrders(_ obey: (Order) -> Void) {
    while let line = readLine() {
        guard let order = Order(line) else { continue }
        switch order.name {
        case "pool": occupyPool(order, jobs: ProcessInfo.processInfo.activeProcessorCount)
        case "one-job": occupyPool(order, jobs: 1)
        case "backlog": fillPool(order)
        default: obey(order)
        }
    }
}

/// Waits on the reader's thread, which runs no loop.
private func occupyPool(_ order: Order, jobs: Int) {
    let (begin, group) = (clockTime(), DispatchGroup())
    for _ in 0..<jobs {
        group.enter()
        Task.detached(priority: .medium) {
            occupyWorker(order.milliseconds)
            group.leave()
        }
    }
    group.wait()
    order.did(since: begin)
}

@inline(never)
func occupyWorker(_ milliseconds: UInt64) { sleepFor(milliseconds) }

/// Many short jobs: the pool is busy throughout, and each of its workers finishes one every 20 ms.
private func fillPool(_ order: Order) {
    let (begin, group) = (clockTime(), DispatchGroup())
    for _ in 0..<(order.milliseconds / 20) {
        group.enter()
        Task.detached(priority: .medium) {
            computeUntil(clockTime() + 20_000_000)
            group.leave()
        }
    }
    group.wait()
    order.did(since: begin)
}
