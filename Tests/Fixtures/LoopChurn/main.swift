import CFaults
import Glibc
import RunLoopKit
import Synchronization

// Repeatedly creates and drops everything that a loop has, and prints what is left.
//
//   LoopChurn KIND [CYCLES]      e.g. LoopChurn timers 1000000
//
// A tenth of the cycles runs before the first measurement, so that everything
// that is kept intentionally (buffers, thread stacks) exists by then.

/// Captured by each closure. All instances must be gone at the end.
final class Captured: Sendable {
    static let alive = Atomic<Int>(0)
    private let bytes = [UInt8](repeating: 7, count: 32)

    init() { Captured.alive.add(1, ordering: .relaxed) }
    deinit { Captured.alive.subtract(1, ordering: .relaxed) }

    func touch() { precondition(bytes.count == 32) }
}

let mode = EventRunLoop.Mode("churn")

func sources(_ loop: EventRunLoop) {
    let captured = Captured()
    let source = EventSource(
        onSchedule: { _, _ in captured.touch() },
        onCancel: { _, _ in captured.touch() },
        { source in
            captured.touch()
            source.invalidate()
        }
    )
    loop.add(source, to: mode)
    loop.add(source, to: .common)
    source.signal()
    loop.run(mode: mode, for: .zero)
}

func timers(_ loop: EventRunLoop) {
    let captured = Captured()
    loop.add(EventTimer(at: .now) { _ in captured.touch() }, to: mode)
    let idle = EventTimer(every: .seconds(60)) { _ in captured.touch() }
    loop.add(idle, to: mode)
    loop.add(idle, to: .common)
    loop.run(mode: mode, for: .zero)
    idle.nextFireDate = .now.advanced(by: .seconds(90))
    idle.invalidate()
}

func observers(_ loop: EventRunLoop) {
    let captured = Captured()
    let keepAlive = EventTimer(every: .seconds(60)) { _ in captured.touch() }
    loop.add(keepAlive, to: mode)
    let observer = LoopObserver { observer, _ in captured.touch() }
    loop.add(observer, to: mode)
    loop.add(LoopObserver(activities: .entry, repeats: false) { _, _ in captured.touch() }, to: mode)
    loop.run(mode: mode, for: .zero)
    observer.invalidate()
    keepAlive.invalidate()
}

func blocks(_ loop: EventRunLoop) {
    let captured = Captured()
    loop.perform(in: mode) { captured.touch() }
    loop.perform(in: [mode, .default]) { captured.touch() }
    let keepAlive = EventSource { _ in captured.touch() }
    loop.add(keepAlive, to: mode)
    loop.run(mode: mode, for: .zero)
    keepAlive.invalidate()
}

func descriptors(_ loop: EventRunLoop) {
    let captured = Captured()
    let number = faults_make_ready_descriptor()
    let source = DescriptorSource(descriptor: number) { _, _ in captured.touch() }
    do throws(RunLoopError) {
        try loop.add(source, to: mode)
    } catch {
        preconditionFailure("\(error)")
    }
    loop.run(mode: mode, for: .seconds(60), returnAfterSourceHandled: true)
    source.invalidate()
    close(number)
}

/// A run that sleeps and is woken.
func wakeUps(_ loop: EventRunLoop) {
    let keepAlive = EventTimer(every: .seconds(60)) { _ in }
    loop.add(keepAlive, to: mode)
    loop.wakeUp()
    loop.perform(in: mode) { EventRunLoop.current.stop() }
    loop.run(mode: mode)
    keepAlive.invalidate()
}

/// A thread with a loop that has slept, and that ends with items of every kind on it, including a block that never ran.
func loops(_: EventRunLoop) {
    var thread = pthread_t()
    let failure = unsafe pthread_create(
        &thread,
        nil,
        { _ in
            let loop = EventRunLoop.current
            let captured = Captured()
            // Reference cycles, if the loop did not release them: the items' closures hold the loop and the items.
            let source = EventSource { _ in
                captured.touch()
                loop.wakeUp()
            }
            loop.add(source)
            loop.add(source, to: .common)
            loop.add(
                EventTimer(every: .seconds(60)) { timer in
                    captured.touch()
                    loop.add(timer, to: "never")
                }
            )
            loop.add(LoopObserver { _, _ in captured.touch() }, to: .common)
            try? loop.add(DescriptorSource(descriptor: 0) { _, _ in loop.stop() }, to: "other")
            loop.run(for: .nanoseconds(1))
            loop.perform(in: "never") {
                captured.touch()
                loop.stop()
            }
            return nil
        },
        nil
    )
    precondition(failure == 0, "pthread_create: errno \(failure)")
    pthread_join(thread, nil)
}

func openDescriptors() -> Int {
    guard let directory = unsafe opendir("/proc/self/fd") else { return -1 }
    defer { unsafe closedir(directory) }
    var count = 0
    while unsafe readdir(directory) != nil { count += 1 }
    return count
}

/// In KiB.
func residentMemory() -> Int {
    guard let file = unsafe fopen("/proc/self/statm", "r") else { return -1 }
    defer { unsafe fclose(file) }
    var text = [CChar](repeating: 0, count: 128)
    guard unsafe fgets(&text, 128, file) != nil else { return -1 }
    let fields = String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self).split(
        separator: " "
    )
    return (Int(fields[1]) ?? -1) * Int(getpagesize()) / 1024
}

struct Figures {
    let allocated = Int(faults_allocated())
    let resident = residentMemory()
    let open = openDescriptors()
}

func churn(_ kind: String, _ cycle: (EventRunLoop) -> Void, _ cycles: Int) {
    let loop = EventRunLoop.current
    for _ in 0..<max(1, cycles / 10) { cycle(loop) }
    let before = Figures()
    let start = MonotonicInstant.now
    for _ in 0..<cycles { cycle(loop) }
    let time = start.duration(to: .now)
    let after = Figures()
    print(
        "\(kind): \(cycles) cycles, bytes \(after.allocated - before.allocated),",
        "resident KiB \(after.resident - before.resident), descriptors \(after.open - before.open),",
        "closures \(Captured.alive.load(ordering: .relaxed)), \(time / cycles) each"
    )
}

let kinds: [(String, (EventRunLoop) -> Void)] = [
    ("sources", sources), ("timers", timers), ("observers", observers), ("blocks", blocks),
    ("descriptors", descriptors), ("wake-ups", wakeUps), ("loops", loops),
]
let arguments = CommandLine.arguments
let cycles = arguments.count > 2 ? Int(arguments[2]) ?? 10_000 : 10_000
let wanted = arguments.count > 1 ? arguments[1] : "all"
for (kind, cycle) in kinds where wanted == "all" || wanted == kind { churn(kind, cycle, cycles) }
