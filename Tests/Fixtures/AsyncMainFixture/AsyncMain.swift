import Dispatch
import Glibc
import RunLoopKit

/// A program whose `main` is async: its main thread must remain the main loop's thread (R60).
@main
struct AsyncMain {
    static func main() async {
        report("main begins")
        try? await Task.sleep(for: .milliseconds(5))
        report("after sleep")
        await MainActor.run { report("MainActor.run") }
        await Task.detached {
            await MainActor.run { report("from a detached task") }
        }.value
        await withCheckedContinuation { continuation in
            DispatchQueue.main.async {
                report("DispatchQueue.main")
                continuation.resume()
            }
        }
        await withCheckedContinuation { continuation in
            EventRunLoop.main.perform {
                report("block of the main loop")
                continuation.resume()
            }
        }
        print("mode:", EventRunLoop.main.currentMode?.name ?? "none")
        // Stopping the loop that drains the program's main queue must not end the program.
        EventRunLoop.main.stop()
        try? await Task.sleep(for: .milliseconds(5))
        report("after stop")
    }

    private static func report(_ place: String) {
        dispatchPrecondition(condition: .onQueue(.main))
        MainActor.assumeIsolated {
            let isMain = EventRunLoop.main.thread?.id == getpid() && EventRunLoop.current === EventRunLoop.main
            print("\(place): \(isMain ? "main thread" : "another thread")")
        }
    }
}
