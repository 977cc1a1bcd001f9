import CFaults
import Glibc
import RunLoopKit

/// A login's processes may have 1,024 descriptors, unless they ask for more.
private func raiseDescriptorLimit() {
    var limit = rlimit()
    unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    limit.rlim_cur = limit.rlim_max
    unsafe setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
}

/// Ten thousand descriptors on one loop: all are ready, then one, then none; nothing remains of them afterwards.
func manyDescriptors() {
    raiseDescriptorLimit()
    let loop = EventRunLoop.current
    let before = descriptors().count
    let served = Counter()
    let numbers = (0..<10_000).map { _ in faults_make_ready_descriptor() }
    guard numbers.allSatisfy({ $0 >= 0 }) else { return say("not enough descriptors") }
    let sources = numbers.map { number in
        DescriptorSource(descriptor: number) { source, _ in
            var count: UInt64 = 0
            _ = unsafe read(source.descriptor, &count, 8)
            if served.increment() >= 10_000 { loop.stop() }
        }
    }
    for source in sources {
        do throws(RunLoopError) { try loop.add(source, to: "other") } catch { return say("refused: \(error)") }
    }
    say("all: \(loop.run(mode: "other", for: .seconds(60))), \(served.value)")
    var one: UInt64 = 1
    _ = unsafe write(numbers[7777], &one, 8)
    say("one: \(loop.run(mode: "other", for: .seconds(60), returnAfterSourceHandled: true)), \(served.value)")
    say("none: \(loop.run(mode: "other", for: .zero, returnAfterSourceHandled: true)), \(served.value)")
    for source in sources { source.invalidate() }
    for number in numbers { close(number) }
    say("finished: \(loop.run(mode: "other")), left: \(descriptors().count - before - 2)")
}

/// A thousand loops at a time: each is woken, and each ends. Their descriptors and memory are freed.
func manyLoops() {
    raiseDescriptorLimit()
    thousandLoops(isFirst: true)
    let (allocated, open) = (faults_allocated(), descriptors().count)
    for _ in 0..<2 { thousandLoops(isFirst: false) }
    let growth = Int(faults_allocated()) - Int(allocated)
    say(
        "descriptors left: \(descriptors().count - open), memory: \(growth < 300_000 ? "back" : "\(growth) bytes more")"
    )
}

private func thousandLoops(isFirst: Bool) {
    let before = descriptors().count
    let workers = (0..<1000).map { _ in Worker() }
    if isFirst { say("descriptors each: \((descriptors().count - before) / 1000)") }
    let answered = workers.count { $0.answers() }
    if isFirst { say("answered: \(answered)") }
    for worker in workers { worker.end() }
}
