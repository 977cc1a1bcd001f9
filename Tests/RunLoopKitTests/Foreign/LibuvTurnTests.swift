import Glibc
import LoopTestSupport
import RunLoopKit
import Testing

/// More of libuv's loop tests: what a turn calls, and how often.
@Suite(.timeLimit(.minutes(10)))
struct LibuvTurnTests {
    @Test(
        "R39: an observer added by another of its kind is first called in the next turn; each is called once a turn",
        .stands(for: "loop_handles.loop_handles")
    )
    func observersAddObservers() async {
        let turns = 21
        let (trace, performs) = await onLoopThread { loop in
            let (trace, turn, performs) = (Trace(), Counter(), Counter())
            let busy = EventSource { source in
                performs.increment()
                source.signal()
            }
            loop.add(busy)
            busy.signal()
            loop.add(
                LoopObserver(activities: .beforeTimers) { _, _ in
                    let number = turn.increment()
                    trace.note("first in \(number)")
                    if number == turns { loop.stop() }
                    guard number % 2 == 1 else { return }
                    let added = LoopObserver(activities: .beforeTimers, repeats: false) { _, _ in
                        trace.note("second in \(turn.value)")
                    }
                    loop.add(added)
                }
            )
            loop.run(for: .seconds(60))
            return (trace.all, performs.value)
        }
        #expect(trace.filter { $0.hasPrefix("first") } == (1...turns).map { "first in \($0)" })
        #expect(trace.filter { $0.hasPrefix("second") } == (1...turns / 2).map { "second in \($0 * 2)" })
        #expect(performs == turns)
    }

    @Test(
        "R29: a source that signals itself is performed once by each polling run, until it no longer does",
        .stands(for: "run_once.run_once")
    )
    func oncePerRun() async {
        let (performs, counts) = await onLoopThread { loop in
            let performs = Counter()
            let source = EventSource { source in
                if performs.increment() < 64 { source.signal() } else { source.invalidate() }
            }
            loop.add(source)
            source.signal()
            var counts: [Int] = []
            repeat {
                counts.append(performs.value)
            } while loop.run(for: .zero) == .timedOut && counts.count < 100
            return (performs.value, counts)
        }
        #expect(performs == 64)
        #expect(counts == Array(0..<64) + (counts.count > 64 ? [64] : []))
    }

    @Test(
        "R18: a polling run does not wait for a timer that is not due, and reports that something is left",
        .stands(for: "run_nowait.run_nowait")
    )
    func pollNotDue() async {
        let (fires, result) = await onLoopThread { loop in
            let fires = Counter()
            loop.add(EventTimer(every: .seconds(100)) { _ in fires.increment() })
            let result = loop.run(for: .zero)
            return (fires.value, result)
        }
        #expect(fires == 0)
        #expect(result == .timedOut)
    }

    @Test(
        "R41: adding puts a timer on a loop, removing takes it off, repeatedly; once invalidated it stays off",
        .stands(for: "active.active")
    )
    func onAndOff() async {
        let (states, fires, result) = await onLoopThread { loop in
            let fires = Counter()
            let timer = EventTimer(after: .seconds(60)) { _ in fires.increment() }
            var states = [loop.contains(timer)]
            loop.add(timer)
            states.append(loop.contains(timer))
            loop.remove(timer)
            states.append(loop.contains(timer))
            loop.add(timer)
            states += [loop.contains(timer), timer.isValid]
            timer.invalidate()
            states += [loop.contains(timer), timer.isValid]
            return (states, fires.value, loop.run(for: .seconds(60)))
        }
        #expect(states == [false, true, false, true, true, false, false])
        #expect(fires == 0)
        #expect(result == .finished)
    }

    @Test(
        "R36: a source that is always signalled does not starve a timer",
        .stands(for: "idle.idle_starvation")
    )
    func alwaysSignalled() async {
        let (performs, turns, fires) = await onLoopThread { loop in
            let (performs, turns, fires) = (Counter(), Counter(), Counter())
            let source = EventSource { source in
                performs.increment()
                source.signal()
            }
            loop.add(source)
            source.signal()
            loop.add(LoopObserver(activities: .beforeSources) { _, _ in turns.increment() })
            loop.add(
                EventTimer(after: .milliseconds(5)) { _ in
                    fires.increment()
                    source.invalidate()
                }
            )
            loop.run(for: .seconds(60))
            return (performs.value, turns.value, fires.value)
        }
        #expect(performs > 0)
        #expect(turns >= performs)
        #expect(fires == 1)
    }

    @Test(
        "R33: sixty-four descriptors, watched and removed before the loop has run, leave an empty mode",
        .stands(for: "poll_close.poll_close")
    )
    func letGoOf() async {
        let (delivered, result) = await onLoopThread { loop in
            let delivered = Counter()
            let sources = (0..<64).map { _ in
                DescriptorSource(
                    descriptor: socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0),
                    events: [.readable, .writable]
                ) { _, _ in delivered.increment() }
            }
            for source in sources { try? loop.add(source) }
            for source in sources {
                source.invalidate()
                close(source.descriptor)
            }
            return (delivered.value, loop.run(for: .seconds(60)))
        }
        #expect(delivered == 0)
        #expect(result == .finished)
    }
}
