@inline(never)
func one(_ number: Int) async -> Int {
    standStill(await breathe(number))
}

@inline(never)
func beforeFirstLeaf(_ number: Int) async -> Int {
    let result = standStill(number)
    return await breathe(result)
}

@inline(never)
func beforeFirst(_ number: Int) async -> Int {
    await beforeFirstLeaf(here("beforeFirst(_:)", with: number)) &+ 1
}

@inline(never)
func afterSecond(_ number: Int) async -> Int {
    let first = await breathe(number)
    let second = await breathe(first)
    let result = standStill(second)
    return await breathe(result) &+ first
}

@inline(never)
func leaf(_ number: Int) async -> Int {
    let value = await breathe(number)
    return standStill(value) &+ number
}

@inline(never)
func chainTwo(_ number: Int) async -> Int {
    await leaf(here("chainTwo(_:)", with: number)) &+ 1
}

@inline(never)
func chainThree(_ number: Int) async -> Int {
    let first = await breathe(number)
    let second = await chainTwo(here("chainThree(_:)", with: number))
    return await breathe(first &+ second)
}

@inline(never)
func chainFour(_ number: Int) async -> Int {
    var sum = await breathe(number)
    if sum >= 0 {
        sum &+= await chainThree(here("chainFour(_:)", with: number))
    }
    return sum
}

@inline(never)
func chainFive(_ number: Int) async -> Int {
    await breathe()
    return await chainFour(here("chainFive(_:)", with: number)) &+ 3
}

struct Failure: Error {}

@inline(never)
func throwingLeaf(_ number: Int) async throws -> Int {
    let value = await breathe(number)
    guard standStill(value) != 0 else { throw Failure() }
    return value
}

@inline(never)
func throwingMiddle(_ number: Int) async throws -> Int {
    let value = try await throwingLeaf(here("throwingMiddle(_:)", with: number))
    return await breathe(value)
}

@inline(never)
func throwing(_ number: Int) async -> Int {
    do {
        return try await throwingMiddle(here("throwing(_:)", with: number))
    } catch {
        return 0
    }
}

@inline(never)
func typedThrowingLeaf(_ number: Int) async throws(Failure) -> Int {
    let value = await breathe(number)
    guard standStill(value) != 0 else { throw Failure() }
    return value
}

@inline(never)
func typedThrowing(_ number: Int) async -> Int {
    (try? await typedThrowingLeaf(here("typedThrowing(_:)", with: number))) ?? 0
}

@inline(never)
func twice(_ number: Int, _ body: (Int) async throws -> Int) async rethrows -> Int {
    let value = try await body(here("twice(_:_:)", with: number))
    return await breathe(value)
}

@inline(never)
func rethrowing(_ number: Int) async -> Int {
    await twice(here("rethrowing(_:)", with: number), leaf)
}

@inline(never)
func genericLeaf<Value: Sendable>(_ value: Value, _ number: Int) async -> Value {
    await breathe(number)
    standStill(number)
    return value
}

@inline(never)
func genericMiddle<Value: Sendable>(_ value: Value) async -> [Value] {
    let result = await genericLeaf(value, here("genericMiddle(_:)"))
    await breathe()
    return [result]
}

@inline(never)
func generic(_ number: Int) async -> Int {
    let values = await genericMiddle(["a": here("generic(_:)", with: number)])
    return values.count
}

@inline(never)
func call(_ body: (Int) async -> Int) async -> Int {
    await breathe()
    return await body(here("call(_:)")) &+ 1
}

@inline(never)
func closure(_ number: Int) async -> Int {
    let offset = here("closure(_:)", linesOn: 1)
    return await call {
        await leaf(here("closure #1 in closure(_:)", with: number) &+ $0) &+ offset
    }
}

@inline(never)
func makeClosure(_ offset: Int) -> @Sendable (Int) async -> Int {
    {
        await breathe()
        return await leaf(here("closure #1 in makeClosure(_:)")) &+ offset &+ $0
    }
}

@inline(never)
func escapingClosure(_ number: Int) async -> Int {
    let body = makeClosure(number)
    return await body(here("escapingClosure(_:)", with: number))
}

@inline(never)
func nested(_ number: Int) async -> Int {
    @inline(never) func inner(_ value: Int) async -> Int {
        await breathe(value &+ number)
        return await leaf(here("inner #1 (_:) in nested(_:)", with: number))
    }
    return await inner(here("nested(_:)", with: number)) &+ number
}

@inline(never)
func descend(_ depth: Int, _ number: Int) async -> Int {
    await breathe(number)
    if depth == 0 { return standStill(number) }
    return await descend(depth - 1, here("descend(_:_:)", with: number)) &+ depth
}

@inline(never)
func recursion(_ number: Int) async -> Int {
    await descend(50, here("recursion(_:)", with: number))
}

@inline(never)
func add(to sum: inout [Int], _ number: Int) async {
    sum.append(await breathe(number))
    sum.append(standStill(number))
}

@inline(never)
func inOut(_ number: Int) async -> Int {
    var sum = [number]
    await add(to: &sum, here("inOut(_:)", with: number))
    return sum.count
}
