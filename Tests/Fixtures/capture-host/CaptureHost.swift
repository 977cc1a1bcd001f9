import CStalls
import Foundation
import StackCapture
import Symbolication
import Synchronization

/// A process that stalls in a known way, captures its own stall, prints the stack, and remains stalled for a debugger.
@main
struct CaptureHost {
    static func main() async {
        if let subcommand = CommandLine.arguments.dropFirst().first.flatMap(AllThreads.init) { return subcommand.run() }
        guard let scenario = CommandLine.arguments.dropFirst().first.flatMap(Scenario.init) else {
            print("usage: capture-host \(Scenario.allCases.map(\.rawValue).joined(separator: "|"))")
            exit(64)
        }
        Observer.watch(isFrozen: scenario.isFrozen)
        if scenario == .mainActor {
            await handleRequest(7)
        } else {
            stall(in: scenario)
        }
    }
}

enum Scenario: String, CaseIterable {
    case sleep, read, lock, poll, semaphore
    case loop, json, mainActor

    /// Whether the thread is running, and must be frozen so that others see it as it was captured.
    var isFrozen: Bool { [.loop, .json, .mainActor].contains(self) }
}

@inline(never)
func stall(in scenario: Scenario) {
    switch scenario {
    case .sleep: sleepInHandler()
    case .read: readFromPipe()
    case .lock: waitForLock()
    case .poll: pollForever()
    case .semaphore: waitForSemaphore()
    case .loop: spinInClosure([1, 2, 3])
    case .json: decodeForever()
    case .mainActor: break
    }
}

@inline(never) func sleepInHandler() { Observer.ready(); Thread.sleep(forTimeInterval: 1000) }

@inline(never)
func readFromPipe() {
    let pipe = Pipe()
    Observer.ready()
    _ = pipe.fileHandleForReading.readData(ofLength: 1)
}

@inline(never)
func waitForLock() {
    let lock = NSLock()
    lock.lock()
    Observer.ready()
    lock.lock()
}

@inline(never) func pollForever() { Observer.ready(); _ = Glibc.poll(nil, 0, -1) }

@inline(never) func waitForSemaphore() { Observer.ready(); DispatchSemaphore(value: 0).wait() }

@inline(never)
func spinInClosure(_ numbers: [Int]) {
    Observer.ready()
    let results = numbers.map { number in
        var sum = number
        while Observer.isRunning.load(ordering: .relaxed) { sum = sum &* 31 &+ 7 }
        return sum
    }
    print(results)
}

struct Item: Codable {
    var id: Int
    var name: String
    var tags: [String]
    var scores: [String: Double]
}

@inline(never)
func decodeForever() {
    let items = (0..<2000).map { Item(id: $0, name: "item \($0)", tags: ["a", "b\($0)"], scores: ["x": Double($0)]) }
    guard let document = try? JSONEncoder().encode(items) else { return }
    Observer.ready()
    var count = 0
    while Observer.isRunning.load(ordering: .relaxed) {
        count += (try? JSONDecoder().decode([Item].self, from: document))?.count ?? 0
    }
    print(count)
}

@inline(never) func breathe() async { await Task.yield() }

@MainActor @inline(never)
func handleRequest(_ number: Int) async { await breathe(); await lookUp(number); await breathe() }

@MainActor @inline(never)
func lookUp(_ number: Int) async { await breathe(); spinInClosure([number]); await breathe() }

/// Captures the stalled thread and prints the stack.
enum Observer {
    static let isRunning = Atomic(true)
    private static let target = Mutex<ThreadIdentity?>(nil)

    /// Called by the thread that is about to stall.
    static func ready() {
        stall_mask(SIGUSR1, false)  // a parent on a dispatch thread passes its mask on
        target.withLock { $0 = ThreadIdentity.current() }
    }

    static func watch(isFrozen: Bool) {
        Thread.detachNewThread {
            while target.withLock({ $0 == nil }) { usleep(1000) }
            usleep(UInt32.random(in: 100_000..<200_000))
            guard let identity = target.withLock({ $0 }), let capturer = try? StackCapturer(deadline: .seconds(5))
            else { exit(1) }
            // The compared capture is a later one, which uses the unwind rows that the earlier ones have cached.
            for _ in 0..<20 { _ = capturer.capture(threadID: identity.threadID, stack: identity.stack) }
            if isFrozen { stall_freeze(identity.threadID) }
            report(capturer.capture(threadID: identity.threadID, stack: identity.stack), identity)
        }
    }

    private static func report(_ result: Result<CapturedStack, CaptureError>, _ identity: ThreadIdentity) {
        switch result {
        case .failure(let error): print("FAILED \(error)")
        case .success(let stack):
            let addresses = stack.frames.enumerated().map {
                ResolvableAddress(address: $1.address, isReturnAddress: $0 > 0)
            }
            for frame in Symbolicator().resolve(addresses, budget: .tool).frames {
                print("FRAME \(String(frame.address, radix: 16)) \(frame.symbol ?? "?")")
            }
            print("UNTABLED \(stack.frames.count { $0.found == .framePointer })")
            print("STACK \(stack.method) \(stack.isComplete ? "complete" : "cut") \(stack.systemCall?.name ?? "-")")
        }
        print("READY \(identity.threadID)")
        _ = fflush(nil)
        while true { sleep(1000) }
    }
}
