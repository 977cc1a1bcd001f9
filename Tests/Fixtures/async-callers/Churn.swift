import Foundation
import StackCapture
import Symbolication
import Synchronization

/// Short tasks, one after the other, on the main actor. The last letter of each function shows which functions call each other: a
/// chain that was read after the thread had moved on has letters that do not match.
struct Churn {
    /// The number of chains to judge, whether they match or not.
    var captures: Int

    /// On a machine with little time for the two processes, most captures happen after the thread has moved on, and show no
    /// chain: then fewer chains are judged.
    private static let longest = Duration.seconds(60)

    private static let main = Mutex<ThreadIdentity?>(nil)
    static let isOver = Atomic(false)

    /// Returns whether no capture found a chain that does not belong to its frame, and some captures found a chain.
    func run() -> Bool {
        Self.start()
        while Self.main.withLock({ $0 == nil }) { usleep(1000) }
        guard let capturer = try? StackCapturer() else { return false }
        defer { Self.isOver.store(true, ordering: .relaxed) }
        return judge {
            guard let identity = Self.main.withLock({ $0 }) else { return [] }
            usleep(20)
            let result = capturer.capture(threadID: identity.threadID, stack: identity.stack)
            return [try? result.get()].compactMap { $0 }
        }
    }

    /// The same for another process, each time with a new sampler.
    func runAnew() -> Bool {
        guard let target = try? Target() else { return false }
        defer { target.end() }
        return judge {
            // Here the main actor is not bound to a thread.
            let all = (try? ProcessSampler(processID: target.processID).captureAll()) ?? []
            return all.compactMap { try? $0.result.get() }.filter { $0.asyncCallers != nil }.map(target.rebased)
        }
    }

    /// Runs the tasks as long as the parent lives, and prints the address of this program.
    static func serve() async {
        Thread.detachNewThread {
            _ = FileHandle.standardInput.readDataToEndOfFile()
            exit(0)
        }
        start()
        print(UInt(bitPattern: #dsohandle))
        fflush(nil)
        await unsafe withUnsafeContinuation { (_: UnsafeContinuation<Void, Never>) in }
    }

    private static func start() {
        Task { @MainActor in
            while !isOver.load(ordering: .relaxed) {
                main.withLock { $0 = ThreadIdentity.current() }
                await outerA(1)
                await outerB(2)
                await outerC(3)
            }
        }
    }

    /// Captures stacks until enough chains are judged. The share of stacks with
    /// a matching chain is printed, but not judged: it depends on the machine.
    private func judge(_ take: () -> [CapturedStack]) -> Bool {
        var (counts, costs): ([String: Int], [CapturedStack.Cost]) = ([:], [])
        let end = ContinuousClock.now + Self.longest
        repeat {
            let stacks = (0..<20).flatMap { _ in take() }
            count(stacks, in: &counts)
            costs += stacks.map(\.cost)
        } while counts["fits", default: 0] + counts["WRONG", default: 0] < captures && ContinuousClock.now < end
        guard !costs.isEmpty else { return false }
        let (held, unwinding) = (costs.map(\.heldNanoseconds).sorted(), costs.map(\.unwindNanoseconds).sorted())
        print("held: median \(held[held.count / 2]) ns, unwinding: \(unwinding[unwinding.count / 2]) ns")
        counts["WRONG", default: 0] += 0
        print(counts.sorted { $0.key < $1.key }.map { "\($0.key): \($0.value)" }.joined(separator: ", "))
        return counts["WRONG"] == 0 && counts["fits", default: 0] > 0
    }

    private func count(_ stacks: [CapturedStack], in counts: inout [String: Int]) {
        let names = Names(of: stacks.compactMap(\.asyncCallers))
        for stack in stacks {
            guard let callers = stack.asyncCallers else {
                counts["no async frame", default: 0] += 1
                continue
            }
            let places = callers.addresses.compactMap { names.places[$0]?.function }.compactMap(Self.letter)
            let frames = names.functions(of: stack).prefix(callers.frame + 1).compactMap(Self.letter)
            guard callers.end != .unknown else {
                counts["unknown", default: 0] += 1
                continue
            }
            // The outermost functions may have no letters.
            guard !places.isEmpty, !frames.isEmpty else {
                counts["outside", default: 0] += 1
                continue
            }
            let fits = Set(places + frames).count == 1
            counts[fits ? "fits" : "WRONG", default: 0] += 1
            if !fits { print(frames, places) }
        }
    }

    /// `middleA(_:)` → A
    private static func letter(_ function: String) -> Character? {
        let name = function.prefix { $0 != "(" }
        return ["outer", "middle", "inner"].contains { name.hasPrefix($0) && name.count == $0.count + 1 }
            ? name.last : nil
    }
}

/// This program as another process, with only the tasks.
private struct Target {
    private let process = Process()
    /// The program ends when this is closed.
    private let input = Pipe()
    /// The offset from its addresses of this program's functions to ours.
    private let slide: UInt

    var processID: Int32 { process.processIdentifier }

    init() throws {
        let pipe = Pipe()
        process.executableURL = URL(fileURLWithPath: "/proc/self/exe").resolvingSymlinksInPath()
        process.arguments = ["--serve"] + CommandLine.arguments.filter { ["--deep", "--napping"].contains($0) }
        process.standardInput = input
        process.standardOutput = pipe
        try process.run()
        let line = String(decoding: pipe.fileHandleForReading.availableData, as: UTF8.self)
        guard let base = UInt(line.trimmingCharacters(in: .newlines)) else { throw POSIXError(.EBADMSG) }
        slide = UInt(bitPattern: #dsohandle) &- base
    }

    func rebased(_ stack: CapturedStack) -> CapturedStack {
        var stack = stack
        for index in stack.frames.indices { stack.frames[index].address &+= slide }
        let addresses = stack.asyncCallers?.addresses.map { $0 &+ slide }
        stack.asyncCallers?.addresses = addresses ?? []
        return stack
    }

    func end() {
        try? input.fileHandleForWriting.close()
        process.waitUntilExit()
    }
}

@MainActor @inline(never) func outerA(_ number: Int) async { consume(await middleA(number &+ 40) &+ 41) }
@MainActor @inline(never) func middleA(_ number: Int) async -> Int { await innerA(number &* 43) &+ 42 }
@MainActor @inline(never) func innerA(_ number: Int) async -> Int {
    let first = descend(depth) { work(number, 40) }
    await Task.yield()
    return grind(first, 40) &+ 40
}

@MainActor @inline(never) func outerB(_ number: Int) async { consume(await middleB(number &+ 400) &+ 401) }
@MainActor @inline(never) func middleB(_ number: Int) async -> Int { await innerB(number &* 403) &+ 402 }
@MainActor @inline(never) func innerB(_ number: Int) async -> Int {
    let first = descend(depth) { work(number, 400) }
    await Task.yield()
    return grind(first, 400) &+ 400
}

@MainActor @inline(never) func outerC(_ number: Int) async { consume(await middleC(number &+ 4000) &+ 4001) }
@MainActor @inline(never) func middleC(_ number: Int) async -> Int { await innerC(number &* 4003) &+ 4002 }
@MainActor @inline(never) func innerC(_ number: Int) async -> Int {
    let first = descend(depth) { work(number, 4000) }
    await Task.yield()
    return grind(first, 4000) &+ 4000
}

/// A level uses more than a kilobyte.
@inline(never) func descend(_ level: Int, _ work: () -> Int) -> Int {
    guard level > 0 else { return work() }
    var space = (Large(), Large(), Large())
    space.0.first.3 = level
    let below = descend(level - 1, work)
    return unsafe withUnsafeBytes(of: &space) { unsafe below &+ Int($0[level]) }
}

@inline(never) func work(_ number: Int, _ rounds: Int) -> Int {
    guard naps else { return grind(number, rounds) }
    usleep(100)
    return number
}

@inline(never) func grind(_ number: Int, _ rounds: Int) -> Int { (0..<rounds * pace).reduce(number) { mix($0 ^ $1) } }

@inline(never) func consume(_ number: Int) { _ = mix(number) }

/// Deeper than the part of the stack that a capture searches from its inner end.
private let depth = CommandLine.arguments.contains("--deep") ? 60 : 0

/// Asleep during the capture, and awake soon after.
private let naps = CommandLine.arguments.contains("--napping")

private let pace = _isDebugAssertConfiguration() ? 1 : 50
