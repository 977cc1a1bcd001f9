// Functions with unusual frames and contexts.

struct Large: Sendable {
    var first = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    var second = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    var third = (0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
}

@inline(never)
func change(_ large: inout [Large], _ number: Int) {
    large[0].first.3 = number
}

@inline(never)
func largeLeaf(_ large: Large, _ number: Int) async -> Large {
    var copies = [large, large]
    change(&copies, number)
    let kept = copies[0]
    await breathe()
    standStill(kept.first.3)
    var result = kept
    result.second.1 = large.third.2
    return result
}

@inline(never)
func largeFrame(_ number: Int) async -> Int {
    var large = Large()
    large.third.2 = number
    let result = await largeLeaf(large, here("largeFrame(_:)", with: number))
    return result.first.3 &+ large.third.2
}

@inline(never) func mix(_ value: Int) -> Int { value &* 7 &+ (value >> 3) }

/// Needs more registers than there are, so that the register of the context may be spilled.
@inline(never)
func manyLiveLeaf(_ number: Int) async -> Int {
    let seed = await breathe(number)
    let (a, b, c, d) = (mix(seed), mix(seed &+ 1), mix(seed &+ 2), mix(seed &+ 3))
    let (e, f, g, h) = (mix(a), mix(b), mix(c), mix(d))
    let (i, j, k, l) = (mix(e), mix(f), mix(g), mix(h))
    let result = standStill(a ^ l)
    let again = await breathe(result)
    return again &+ a &* b &+ c &* d &+ e &* f &+ g &* h &+ i &* j &+ k &* l
}

@inline(never)
func manyLive(_ number: Int) async -> Int {
    var sum = 0
    for round in 0..<2 {
        sum &+= await manyLiveLeaf(round == 0 ? here("manyLive(_:)", with: number) : round)
    }
    return sum
}

@inline(never)
func deferringLeaf(_ number: Int) async -> Int {
    let value = await breathe(number)
    defer { standStill(value) }
    return value &+ 1
}

@inline(never)
func deferring(_ number: Int) async -> Int {
    defer { mixOnce(number) }
    return await deferringLeaf(here("deferring(_:)", with: number))
}

@inline(never) func mixOnce(_ value: Int) { _ = mix(value) }

@inline(never)
func loop(_ number: Int) async -> Int {
    var sum = 0
    for round in 0..<4 {
        sum &+= await breathe(round)
        if round == 2 {
            sum &+= await leaf(here("loop(_:)", with: number))
        }
    }
    return sum
}

@inline(never)
func descendSynchronously(_ depth: Int) -> Int {
    depth == 0 ? standStill(depth) : descendSynchronously(depth - 1) &+ mix(depth)
}

@inline(never)
func deepSynchronousLeaf(_ number: Int) async -> Int {
    let value = await breathe(number)
    let sorted = [3, 1, 2].sorted { descendSynchronously(40) &+ $0 < $1 }
    return sorted[0] &+ value
}

@inline(never)
func deepSynchronous(_ number: Int) async -> Int {
    await deepSynchronousLeaf(here("deepSynchronous(_:)", with: number))
}

@inline(never)
func evaluate(_ value: @autoclosure () async -> Int) async -> Int {
    await breathe(here("evaluate(_:)", linesOn: 1))
    return await value() &+ 1
}

@inline(never)
func autoclosure(_ number: Int) async -> Int {
    let start = here("autoclosure(_:)", linesOn: 1)
    return await evaluate(
        await leaf(here("implicit closure #1 in autoclosure(_:)", with: number) &+ start)
    )
}

@inline(never)
func withDefault(_ number: Int, offset: Int = mix(3)) async -> Int {
    await breathe(offset)
    return await leaf(here("withDefault(_:offset:)", with: number)) &+ offset
}

@inline(never)
func defaultArgument(_ number: Int) async -> Int {
    await withDefault(here("defaultArgument(_:)", with: number))
}

@inline(never)
func pair(_ number: Int) async -> (Int, String, Large) {
    let value = await breathe(number)
    return (standStill(value), "\(number)", Large())
}

@inline(never)
func tuple(_ number: Int) async -> Int {
    let (value, text, large) = await pair(here("tuple(_:)", with: number))
    return value &+ text.count &+ large.first.0
}

@inline(never)
func numbers(_ number: Int) async -> some Collection<Int> {
    let value = await breathe(number)
    return [standStill(value), value]
}

@inline(never)
func opaque(_ number: Int) async -> Int {
    let numbers = await numbers(here("opaque(_:)", with: number))
    return numbers.count
}
