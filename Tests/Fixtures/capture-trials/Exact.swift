import CTrials
import Foundation
import StackCapture

/// Captures each scene's thread and freezes it, so that a debugger can report its stack: `compare_stacks.py`, which runs this
/// program. With `--eu-stack` eu-stack is used instead.
final class Exact {
    private let part: Part
    private let capturer: StackCapturer
    private let rounds: Int
    private var second = SecondWitness()

    /// The process's first thread remains available to the main actor.
    static func runBeside(_ part: Part) async -> Never {
        Thread.detachNewThread { Exact(part).run() }
        while true { try? await Task.sleep(for: .seconds(1000)) }
    }

    private init(_ part: Part) {
        self.part = part
        rounds = part.isShort || part.asksSecondWitness ? 3 : 20
        guard let capturer = try? StackCapturer(deadline: .seconds(5)) else {
            fatalError("no capturer")
        }
        self.capturer = capturer
    }

    private func run() -> Never {
        let plugins = try? Plugins()
        unsafe trial_set_plugin_folder(plugins?.folder ?? "")
        let scenes = Scene.all.filter { part.includes($0.name) }
        trial_watchdog_start(120_000_000_000)
        for scene in scenes {
            if part.isVerbose { print(scene.name) }
            run(scene)
        }
        plugins?.remove()
        print("END \(scenes.count) scenes")
        exit(part.asksSecondWitness ? second.conclude(scenes: scenes.count) : 0)
    }

    private func run(_ scene: Scene) {
        switch scene.way {
        case .running(let start):
            Subject.expect()
            start()
            runFrozen(scene)
        case .task(let body):
            Subject.expect()
            Task { await body() }
            runFrozen(scene)
        case .blocked(let enter, let release):
            for round in 0..<rounds { runBlocked(scene, round, enter, release) }
        case .call(let index):
            for round in 0..<rounds { runCall(scene, round, index) }
        }
    }

    private func runFrozen(_ scene: Scene) {
        let deadline = trial_now_ns() + 10_000_000_000
        while Subject.identity == nil && trial_now_ns() < deadline { usleep(500) }
        guard let identity = Subject.identity else { return print("\(scene.name): did not begin") }
        for round in 0..<rounds {
            usleep(UInt32.random(in: 300..<3000))
            trial_watchdog_feed()
            guard trial_freeze(identity.threadID) else { continue }
            publish(capturer.capture(identity), identity, scene, round, isFrozen: true)
            trial_thaw()
        }
        Subject.release()
        while !Subject.isOver { usleep(500) }
    }

    private func runBlocked(_ scene: Scene, _ round: Int, _ enter: () -> Void, _ release: () -> Void) {
        Subject.expect()
        enter()
        while Subject.identity == nil { usleep(500) }
        guard let identity = Subject.identity else { return }
        usleep(UInt32.random(in: 2000..<6000))
        trial_watchdog_feed()
        publish(captureQuietly(identity), identity, scene, round, isFrozen: false)
        release()
        while !Subject.isOver { usleep(200) }
    }

    private func runCall(_ scene: Scene, _ round: Int, _ index: Int) {
        var error: Int32 = 0
        trial_block_set_depth(Int32.random(in: 0..<12))
        guard let block = unsafe trial_block_start(index, 150_000_000, &error) else { return }
        trial_watchdog_feed()
        if unsafe trial_block_await(block, trial_now_ns() + 5_000_000_000) {
            let identity = ThreadIdentity(unsafe trial_block_thread(block))
            publish(captureQuietly(identity), identity, scene, round, isFrozen: false)
        }
        _ = unsafe trial_block_finish(block)
    }

    /// Repeats until the thread has entered its call.
    private func captureQuietly(_ identity: ThreadIdentity) -> Result<CapturedStack, CaptureError> {
        for _ in 0..<1000 {
            let result = capturer.capture(identity)
            if case .success(let stack) = result, stack.method == .signal { continue }
            return result
        }
        return capturer.capture(identity)
    }

    /// Nothing here prints, or takes a lock of the C library: the frozen thread may hold it.
    private func publish(
        _ result: Result<CapturedStack, CaptureError>,
        _ identity: ThreadIdentity,
        _ scene: Scene,
        _ round: Int,
        isFrozen: Bool
    ) {
        let stack = try? result.get()
        if part.asksSecondWitness {
            return second.compare(stack, identity, scene.name, isFrozen: isFrozen)
        }
        let frames = stack?.frames ?? []
        unsafe trial_publish_begin(
            identity.threadID,
            Int32(round),
            isFrozen,
            stack?.isComplete ?? false,
            scene.name
        )
        if case .failure(let error) = result { trial_publish_refusal(error.code == .stackOutOfBounds) }
        for frame in frames { trial_publish_frame(UInt64(frame.address), frame.found == .framePointer) }
        trial_call_debugger()
    }
}
