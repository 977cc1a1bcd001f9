import Dispatch
import Glibc
import RunLoopKit
import Synchronization

let astray = Atomic<Int>(0)
let hopCount = Atomic<Int>(0)

/// Counts a hop, and whether it ended on the wrong thread.
func check(_ isRight: Bool, line: Int = #line) {
    hopCount.add(1, ordering: .relaxed)
    if !isRight {
        astray.add(1, ordering: .relaxed)
        print("astray: line \(line)")
    }
}

func isMainThread() -> Bool { pthread_equal(pthread_self(), mainThread) != 0 }

/// The program's first thread; set when the first line of an async main runs there.
private let mainThread: pthread_t = pthread_self()

/// Eight tasks, each of which hops to all executors.
@MainActor
func hops() async {
    check(isMainThread())
    hopCount.store(0, ordering: .relaxed)
    let (first, second) = (LoopThread(), LoopThread())
    let (camera, other) = (Camera(first.loop), Camera(second.loop))
    // The loop continues its own work during the hops.
    let timer = EventTimer(every: .milliseconds(1)) { _ in EventRunLoop.main.wakeUp() }
    EventRunLoop.main.add(timer, to: .common)
    let before = EventRunLoop.main.heartbeat.pulse.turn
    await withTaskGroup(of: Void.self) { group in
        for number in 0..<8 {
            group.addTask {
                for round in 0..<100 {
                    await goAround(first, second, camera, other, sleeps: round % 10 == number)
                }
            }
        }
    }
    timer.invalidate()
    check(isMainThread())
    print("hops: \(hopCount.load(ordering: .relaxed) - 1)")
    print("astray: \(astray.load(ordering: .relaxed))")
    print("main turns while busy: \(EventRunLoop.main.heartbeat.pulse.turn > before)")
}

/// Sixteen checks.
private func goAround(
    _ first: LoopThread,
    _ second: LoopThread,
    _ camera: Camera,
    _ other: Camera,
    sleeps: Bool
) async {
    await onMainActor()
    check(await camera.shoot() == first.thread)
    await onPreferred(second, camera, first, sleeps: sleeps)
    await throughMainQueue(sleeps: sleeps)
    check(await other.shoot() == second.thread)
    await MainActor.run { check(isMainThread()) }
    await onBlock(first)
}

@MainActor
private func onMainActor() async {
    check(isMainThread())
    await Task.yield()
    MainActor.preconditionIsolated()
    dispatchPrecondition(condition: .onQueue(.main))
    check(isMainThread() && EventRunLoop.current === EventRunLoop.main)
}

private func onPreferred(_ place: LoopThread, _ camera: Camera, _ cameraPlace: LoopThread, sleeps: Bool) async {
    await withTaskExecutorPreference(place.loop) {
        check(currentThread() == place.thread)
        await onMainActor()
        check(currentThread() == place.thread)
        check(await camera.shoot() == cameraPlace.thread)
        check(currentThread() == place.thread)
        if sleeps { try? await Task.sleep(for: .microseconds(200)) } else { await Task.yield() }
        check(currentThread() == place.thread)
    }
}

private func throughMainQueue(sleeps: Bool) async {
    await withCheckedContinuation { continuation in
        DispatchQueue.global().async {
            DispatchQueue.main.sync { check(isMainThread()) }
            let deadline = DispatchTime.now() + .microseconds(sleeps ? 500 : 0)
            DispatchQueue.main.asyncAfter(deadline: deadline) {
                check(isMainThread())
                DispatchQueue.main.async {
                    MainActor.assumeIsolated { check(isMainThread()) }
                    continuation.resume()
                }
            }
        }
    }
}

private func onBlock(_ place: LoopThread) async {
    await withCheckedContinuation { continuation in
        place.loop.perform {
            check(currentThread() == place.thread)
            continuation.resume()
        }
    }
}
