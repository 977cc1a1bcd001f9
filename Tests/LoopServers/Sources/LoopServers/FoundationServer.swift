import Foundation

/// A program whose main thread only runs Foundation's main loop.
func serveFoundation() -> Never {
    // So that it turns, as a program's loop does.
    RunLoop.main.add(Timer(timeInterval: 0.2, repeats: true) { _ in }, forMode: .default)
    Thread.detachNewThread {
        readOrders { order in
            RunLoop.main.perform { obeyOnMain(order) }
        }
        exit(0)
    }
    say("READY 0")
    while true { RunLoop.main.run(until: .distantFuture) }
}

private func obeyOnMain(_ order: Order) {
    let begin = clockTime()
    switch order.name {
    case "turns": turnMain(order, since: begin)
    case "polling":
        let timer = Timer(timeInterval: 0.001, repeats: true) { timer in
            guard clockTime() >= order.end(after: begin) else { return }
            timer.invalidate()
            order.did(since: begin)
        }
        RunLoop.main.add(timer, forMode: .default)
    default: order.stall()
    }
}

/// Busy for two thirds of the time, a millisecond each turn.
private func turnMain(_ order: Order, since begin: UInt64) {
    computeUntil(clockTime() + 1_000_000)
    guard clockTime() < order.end(after: begin) else { return order.did(since: begin) }
    RunLoop.main.add(
        Timer(timeInterval: 0.0005, repeats: false) { _ in turnMain(order, since: begin) },
        forMode: .default
    )
}
