import Dispatch
import Glibc
import RunLoopKit

enum Local {
    @TaskLocal static var name = "no value"
}

/// Tests the main loop as an executor.
func mainExecutor() async {
    let loop = EventRunLoop.main
    let camera = Camera(loop)
    await camera.report()
    await Task(executorPreference: loop) {
        print("preferring: \(place())")
        try? await Task.sleep(for: .milliseconds(1))
        print("after sleep: \(place())")
    }.value
    await nestedRuns(loop)
    await withCheckedContinuation { continuation in
        loop.add(
            EventTimer(at: .now) { _ in
                print("in a timer: \(camera.assumeIsolated { $0.frames })")
                continuation.resume()
            }
        )
    }
}

func place() -> String { getpid() == EventRunLoop.main.thread?.id && isMainThread() ? "main thread" : "elsewhere" }

extension Camera {
    func report() {
        frames += 1
        // Checked at run time, and true: both have the same executor.
        MainActor.assumeIsolated { print("pinned: \(place()), main actor: \(MainActor.shared.isHere)") }
    }
}

extension MainActor {
    fileprivate nonisolated var isHere: Bool { MainActor.assumeIsolated { true } }
}

/// A task's job on the main loop runs the loop: the main queue is served,
/// other jobs of the loop are not run, and the task is the same afterwards.
private func nestedRuns(_ loop: EventRunLoop) async {
    let other = await Task(executorPreference: loop) {
        Local.$name.withValue("outer value") {
            let other = Task(executorPreference: loop) { print("then: the other job") }
            DispatchQueue.main.async {
                print("nested: main queue")
                EventRunLoop.main.stop()
            }
            runNested(loop)
            print("after it: \(Local.name)")
            return other
        }
    }.value
    await other.value
}

/// Calls `run` from an asynchronous function, intentionally.
private func runNested(_ loop: EventRunLoop) { loop.run(for: .seconds(10)) }
