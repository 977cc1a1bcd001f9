import FoundationEssentials
import Glibc
import RunLoopKit
import Synchronization

// The mistakes of the demo's server: six handlers on the main actor, one on an event loop, and
// one in the task pool. Each blocks its loop in a separate function that the report must name.
// Each function does some work after its long call: a tail call would remove it from the stack.

/// Parses a document that is far too large for the thread that serves all clients.
@MainActor @inline(never)
func decodeHugeDocument(_ document: HugeDocument, until end: MonotonicInstant) -> Int {
    var rows = 0
    // The document's size is an estimate, so it is decoded again while time is left.
    repeat {
        rows += (try? JSONDecoder().decode([HugeDocument.Row].self, from: document.json))?.count ?? 0
    } while MonotonicInstant.now < end
    return rows
}

/// Waits for a lock that another thread holds.
@MainActor @inline(never)
func waitForLock(_ holder: LockHolder) -> Int {
    holder.lock.withLock { visits in
        visits += 1
        return visits
    }
}

/// Reads from a pipe that is still empty.
@MainActor @inline(never)
func readFromPipe(_ pipe: SlowPipe) -> Int {
    var byte: UInt8 = 0
    let count = unsafe read(pipe.input, &byte, 1)
    return count + Int(byte)
}

/// Sleeps, like a carelessly written retry.
@MainActor @inline(never)
func sleepOnMainActor(_ milliseconds: Int) -> Int {
    let result = usleep(UInt32(milliseconds) * 1_000)
    return milliseconds + Int(result)
}

/// Changes a large file and syncs it to the disk, repeatedly.
@MainActor @inline(never)
func syncLargeFile(_ file: LargeFile, until end: MonotonicInstant) -> Int {
    var rounds = 0
    repeat {
        file.dirty(round: rounds)
        fsync(file.descriptor)
        rounds += 1
    } while MonotonicInstant.now < end
    return rounds
}

/// Computes in a closure that a generic function calls, three awaits below the handler.
@MainActor @inline(never)
func spinInClosure(until end: MonotonicInstant) async -> UInt64 {
    let digest = await renderPage(seed: 1 as UInt64) { value in
        var value = value
        while MonotonicInstant.now < end {
            for step in 0..<50_000 as Range<UInt64> { value = value &* 6_364_136_223_846_793_005 &+ step }
        }
        return value
    }
    return digest ^ 1
}

/// Blocks a task's worker where the task should await, while no other task can use the worker.
@inline(never)
func blockWorker(_ crew: BlockedCrew) {
    crew.begin()
    let result = usleep(UInt32(crew.milliseconds) * 1_000)
    crew.end(result)
}

@MainActor @inline(never)
private func renderPage<Value: Sendable>(seed: Value, _ transform: (Value) -> Value) async -> Value {
    await Task.yield()
    return await fillTable(seed: seed, transform)
}

@MainActor @inline(never)
private func fillTable<Value: Sendable>(seed: Value, _ transform: (Value) -> Value) async -> Value {
    await Task.yield()
    return apply(transform, to: seed)
}

@MainActor @inline(never)
private func apply<Value>(_ transform: (Value) -> Value, to value: Value) -> Value {
    let result = transform(value)
    return withExtendedLifetime(result) { result }
}

/// Hashes a password slowly, on the loop that all connections of a thread share.
@inline(never)
func hashPasswordOnEventLoop(until end: MonotonicInstant) -> UInt64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325
    repeat {
        for byte in "correct horse battery staple".utf8 { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    } while MonotonicInstant.now < end
    return hash
}
