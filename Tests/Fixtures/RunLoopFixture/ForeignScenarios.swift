import Dispatch
import Glibc
import RunLoopKit
import Synchronization

// Cases of other projects' test suites that need a separate main thread.

/// Runs the scenario named by the second argument.
func foreignScenario() {
    switch CommandLine.arguments.dropFirst(2).first {
    case "main-queue-twice": mainQueueTwice()
    case "increments": increments()
    case "cross-thread-while-nested": crossThreadWhileNested()
    case "main-modes": mainModes()
    default:
        say("unknown scenario")
        exit(64)
    }
}

/// A run that returns after a source: twice with work on the main queue, and then with only a timer.
private func mainQueueTwice() {
    let loop = EventRunLoop.main
    for round in 1...2 {
        DispatchQueue.main.async { say("async \(round)") }
        say("\(loop.run(for: .seconds(60), returnAfterSourceHandled: true))")
    }
    loop.add(
        EventTimer(after: .milliseconds(30)) { _ in
            say("timer")
            loop.stop()
        }
    )
    say("\(loop.run(for: .seconds(60), returnAfterSourceHandled: true))")
}

private let count = Atomic<Int>(0)

/// Another thread runs its own loop, and between its runs enqueues five increments on the main queue.
private func increments() {
    var thread = pthread_t()
    _ = unsafe pthread_create(
        &thread,
        nil,
        { _ in
            let keepAlive = EventSource { _ in }
            EventRunLoop.current.add(keepAlive)
            for _ in 0..<5 {
                DispatchQueue.main.async {
                    if count.add(1, ordering: .relaxed).newValue == 5 { EventRunLoop.main.stop() }
                }
                EventRunLoop.current.run(for: .milliseconds(2))
            }
            return nil
        },
        nil
    )
    say("\(EventRunLoop.main.run(for: .seconds(20))) after \(count.load(ordering: .relaxed))")
    pthread_join(thread, nil)
}

/// A block of the main loop runs the loop; a block from another thread ends that run.
private func crossThreadWhileNested() {
    let loop = EventRunLoop.main
    loop.perform {
        DispatchQueue.global().async {
            loop.perform {
                say("from elsewhere")
                loop.stop()
            }
        }
        say("nested: \(loop.run(for: .seconds(20)))")
        loop.stop()
    }
    loop.perform { say("later block") }
    say("outer: \(loop.run(for: .seconds(20)))")
}

/// The main loop's modes can be listed, and the first of them can be run, with and without returning after a source.
private func mainModes() {
    let loop = EventRunLoop.main
    say("current: \(loop.currentMode?.name ?? "none")")
    for mode in loop.modes.prefix(1) {
        for returns in [false, true] {
            say("\(mode): \(loop.run(mode: mode, for: .milliseconds(2), returnAfterSourceHandled: returns))")
        }
    }
}
