import Dispatch

actor Counter {
    private var values: [Int: String] = [:]

    @inline(never)
    func put(_ number: Int) async -> Int {
        values[number] = "x"
        let result = standStill(number)
        values[result] = "y"
        return await breathe(result)
    }

    @inline(never)
    func update(_ number: Int) async -> Int {
        await breathe(number)
        return await put(here("Counter.update(_:)", with: number)) &+ values.count
    }

    @inline(never)
    func forward(to other: Counter, _ number: Int) async -> Int {
        await breathe(number)
        let result = await other.update(here("Counter.forward(to:_:)", with: number))
        values[result] = "z"
        return result
    }
}

@inline(never)
func defaultActor(_ number: Int) async -> Int {
    await Counter().update(here("defaultActor(_:)", with: number))
}

@inline(never)
func actorToActor(_ number: Int) async -> Int {
    await Counter().forward(to: Counter(), here("actorToActor(_:)", with: number))
}

final class SerialQueue: SerialExecutor {
    private let queue = DispatchQueue(label: "queued")
    func enqueue(_ job: consuming ExecutorJob) {
        let job = UnownedJob(job)
        let executor = unsafe asUnownedSerialExecutor()
        queue.async { unsafe job.runSynchronously(on: executor) }
    }
}

/// Runs on its own queue.
actor Queued {
    private let executor = SerialQueue()
    nonisolated var unownedExecutor: UnownedSerialExecutor { unsafe executor.asUnownedSerialExecutor() }

    @inline(never)
    func work(_ number: Int) async -> Int {
        let value = await breathe(number)
        return await finish(here("Queued.work(_:)", with: number)) &+ value
    }

    @inline(never)
    func finish(_ number: Int) async -> Int {
        await breathe()
        return standStill(number)
    }
}

@inline(never)
func customExecutor(_ number: Int) async -> Int {
    await Queued().work(here("customExecutor(_:)", with: number))
}

@MainActor @inline(never)
func mainLeaf(_ number: Int) async -> Int {
    await breathe()
    return standStill(number)
}

@MainActor @inline(never)
func mainMiddle(_ number: Int) async -> Int {
    await mainLeaf(here("mainMiddle(_:)", with: number)) &+ number
}

@inline(never)
func mainActor(_ number: Int) async -> Int {
    await mainMiddle(here("mainActor(_:)", with: number))
}

@globalActor
actor Background {
    static let shared = Background()
}

@Background @inline(never)
func backgroundLeaf(_ number: Int) async -> Int {
    let value = await breathe(number)
    return standStill(value)
}

@inline(never)
func globalActor(_ number: Int) async -> Int {
    await backgroundLeaf(here("globalActor(_:)", with: number))
}

@inline(never)
func work(for counter: isolated Counter, _ number: Int) async -> Int {
    await breathe()
    return await leaf(here("work(for:_:)", with: number))
}

@inline(never)
func isolatedParameter(_ number: Int) async -> Int {
    let counter = Counter()
    return await work(for: counter, here("isolatedParameter(_:)", with: number))
}

@inline(never)
nonisolated(nonsending) func nonsendingLeaf(_ number: Int) async -> Int {
    let value = await breathe(number)
    return standStill(value)
}

@MainActor @inline(never)
func nonsendingOnMain(_ number: Int) async -> Int {
    await nonsendingLeaf(here("nonsendingOnMain(_:)", with: number)) &+ 1
}

@inline(never)
func nonsending(_ number: Int) async -> Int {
    await nonsendingOnMain(here("nonsending(_:)", with: number))
}

@concurrent @inline(never)
func concurrentLeaf(_ number: Int) async -> Int {
    standStill(number)
}

@MainActor @inline(never)
func concurrentFromMain(_ number: Int) async -> Int {
    await concurrentLeaf(here("concurrentFromMain(_:)", with: number))
}

@inline(never)
func concurrent(_ number: Int) async -> Int {
    await concurrentFromMain(here("concurrent(_:)", with: number))
}

@inline(never)
func isolatedAsCaller(_ number: Int, isolation: isolated (any Actor)? = #isolation) async -> Int {
    await breathe()
    return await leaf(here("isolatedAsCaller(_:isolation:)", with: number))
}

@MainActor @inline(never)
func inheritOnMain(_ number: Int) async -> Int {
    await isolatedAsCaller(here("inheritOnMain(_:)", with: number))
}

@inline(never)
func inheritedIsolation(_ number: Int) async -> Int {
    await inheritOnMain(here("inheritedIsolation(_:)", with: number))
}
