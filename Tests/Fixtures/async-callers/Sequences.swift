@inline(never)
func streamLeaf(_ number: Int) async -> Int {
    let (stream, continuation) = AsyncStream.makeStream(of: Int.self)
    let task = Task {
        for value in 0..<3 {
            await breathe()
            continuation.yield(value)
        }
        continuation.finish()
    }
    var sum = number
    for await value in stream {
        sum &+= value
        if value == 1 { standStill(value) }
    }
    await task.value
    return sum
}

@inline(never)
func stream(_ number: Int) async -> Int {
    await streamLeaf(here("stream(_:)", with: number))
}

@inline(never)
func throwingStreamLeaf(_ number: Int) async throws -> Int {
    let stream = AsyncThrowingStream<Int, any Error> { continuation in
        continuation.yield(number)
        continuation.finish(throwing: Failure())
    }
    var sum = 0
    for try await value in stream {
        sum &+= standStill(value)
    }
    return sum
}

@inline(never)
func throwingStream(_ number: Int) async -> Int {
    (try? await throwingStreamLeaf(here("throwingStream(_:)", with: number))) ?? 0
}

@inline(never)
func asyncMap(_ number: Int) async -> Int {
    let stream = AsyncStream<Int> { continuation in
        continuation.yield(number)
        continuation.finish()
    }
    var sum = 0
    let start = here("asyncMap(_:)", linesOn: 1, slack: 3)
    for await value in stream.map({ await leaf(here("closure #2 in asyncMap(_:)", with: number) &+ $0) }) {
        sum &+= value &+ start
    }
    return sum
}

struct Countdown: AsyncSequence, AsyncIteratorProtocol {
    var left: Int

    @inline(never)
    mutating func next() async -> Int? {
        await breathe()
        if left == 1 { standStill(left) }
        left -= 1
        return left < 0 ? nil : left
    }

    func makeAsyncIterator() -> Countdown { self }
}

@inline(never)
func ownSequence(_ number: Int) async -> Int {
    var sum = here("ownSequence(_:)", linesOn: 1, slack: 2)
    for await value in Countdown(left: 3) {
        sum &+= value
    }
    return sum
}

@inline(never)
func unfolding(_ number: Int) async -> Int {
    let stream = AsyncStream<Int> { await leaf(here("closure #1 in unfolding(_:)", with: number)) }
    var iterator = stream.makeAsyncIterator()
    let start = here("unfolding(_:)", linesOn: 1)
    let value = await iterator.next()
    return (value ?? 0) &+ start
}

@inline(never)
func afterSleepLeaf(_ number: Int) async -> Int {
    try? await Task.sleep(for: .milliseconds(1))
    return standStill(number)
}

@inline(never)
func afterSleep(_ number: Int) async -> Int {
    await afterSleepLeaf(here("afterSleep(_:)", with: number))
}
