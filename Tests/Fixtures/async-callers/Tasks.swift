import Dispatch
import Synchronization

// In child tasks the chain ends at the task's closure: the child's functions are recorded, the parent's are not.

@inline(never)
func asyncLet(_ number: Int) async -> Int {
    async let value = chainTwo(here("implicit closure #1 in asyncLet(_:)", with: number))
    let other = await breathe(number)
    return await value &+ other
}

@inline(never)
func asyncLetActor(_ number: Int) async -> Int {
    let counter = Counter()
    async let value = counter.update(here("implicit closure #1 in asyncLetActor(_:)", with: number))
    return await value
}

@inline(never)
func taskGroup(_ number: Int) async -> Int {
    await withTaskGroup(of: Int.self) { group in
        group.addTask { await chainTwo(here("closure #1 in closure #1 in taskGroup(_:)", with: number)) }
        group.addTask { await breathe(number) }
        var sum = 0
        for await value in group { sum &+= value }
        return sum
    }
}

@inline(never)
func throwingTaskGroup(_ number: Int) async -> Int {
    let sum = try? await withThrowingTaskGroup(of: Int.self) { group in
        group.addTask {
            try await throwingLeaf(here("closure #1 in closure #1 in throwingTaskGroup(_:)", with: number))
        }
        return try await group.next() ?? 0
    }
    return sum ?? 0
}

@inline(never)
func discardingTaskGroup(_ number: Int) async -> Int {
    await withDiscardingTaskGroup { group in
        group.addTask { _ = await leaf(here("closure #1 in closure #1 in discardingTaskGroup(_:)", with: number)) }
    }
    return number
}

@inline(never)
func groupBody(_ number: Int) async -> Int {
    let start = here("groupBody(_:)", slack: 1)
    return await withTaskGroup(of: Int.self) { group in
        group.addTask { number }
        let first = await group.next() ?? 0
        return await leaf(here("closure #1 in groupBody(_:)", with: number)) &+ first &+ start
    }
}

@inline(never)
func detached(_ number: Int) async -> Int {
    await Task.detached { await leaf(here("closure #1 in detached(_:)", with: number)) }.value
}

@inline(never)
func unstructured(_ number: Int) async -> Int {
    let task = Task { await chainTwo(here("closure #1 in unstructured(_:)", with: number)) }
    return await task.value
}

@inline(never)
func immediate(_ number: Int) async -> Int {
    let task = Task.immediate { await beforeFirstLeaf(here("closure #1 in immediate(_:)", with: number)) }
    return await task.value
}

@inline(never)
func cancellationHandler(_ number: Int) async -> Int {
    let start = here("cancellationHandler(_:)", linesOn: 1)
    return await withTaskCancellationHandler {
        await leaf(here("closure #1 in cancellationHandler(_:)", with: number)) &+ start
    } onCancel: {
        mixOnce(start)
    }
}

@inline(never)
func continuationLeaf(_ number: Int) async -> Int {
    let start = here("continuationLeaf(_:)", linesOn: 1, isOptional: true)
    return await withCheckedContinuation { continuation in
        continuation.resume(returning: standStill(number) &+ start)
    }
}

@inline(never)
func continuationBody(_ number: Int) async -> Int {
    await continuationLeaf(here("continuationBody(_:)", with: number))
}

@inline(never)
func unsafeContinuationLeaf(_ number: Int) async -> Int {
    let start = here("unsafeContinuationLeaf(_:)", linesOn: 1, isOptional: true)
    return await unsafe withUnsafeContinuation { continuation in
        unsafe continuation.resume(returning: standStill(number) &+ start)
    }
}

@inline(never)
func unsafeContinuationBody(_ number: Int) async -> Int {
    await unsafeContinuationLeaf(here("unsafeContinuationBody(_:)", with: number))
}

@inline(never)
func resumedLeaf(_ number: Int) async -> Int {
    let value = await withCheckedContinuation { continuation in
        DispatchQueue.global().async { continuation.resume(returning: number) }
    }
    return standStill(value)
}

@inline(never)
func resumed(_ number: Int) async -> Int {
    await resumedLeaf(here("resumed(_:)", with: number))
}

@inline(never)
func resumedWithErrorLeaf(_ number: Int) async throws -> Int {
    do {
        return try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Int, any Error>) in
            DispatchQueue.global().async { continuation.resume(throwing: Failure()) }
        }
    } catch {
        standStill(number)
        throw error
    }
}

@inline(never)
func resumedWithError(_ number: Int) async -> Int {
    (try? await resumedWithErrorLeaf(here("resumedWithError(_:)", with: number))) ?? 0
}

enum Locals {
    @TaskLocal static var request = 0
}

@inline(never)
func taskLocal(_ number: Int) async -> Int {
    let start = here("taskLocal(_:)", linesOn: 1)
    return await Locals.$request.withValue(number) {
        await leaf(here("closure #1 in taskLocal(_:)", with: number)) &+ start &+ Locals.request
    }
}

final class QueueExecutor: TaskExecutor {
    private let queue = DispatchQueue(label: "task executor")
    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let executor = unsafe asUnownedTaskExecutor()
        queue.async { unsafe job.runSynchronously(on: executor) }
    }
}

@inline(never)
func executorPreference(_ number: Int) async -> Int {
    let executor = QueueExecutor()
    let start = here("executorPreference(_:)", linesOn: 1)
    return await withTaskExecutorPreference(executor) {
        await leaf(here("closure #1 in executorPreference(_:)", with: number)) &+ start
    }
}

@inline(never)
func anothersValueLeaf(_ number: Int) async -> Int {
    let value = await Task { await breathe(number) }.value
    return standStill(value)
}

@inline(never)
func anothersValue(_ number: Int) async -> Int {
    await anothersValueLeaf(here("anothersValue(_:)", with: number))
}
