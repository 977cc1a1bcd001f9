import Glibc

// Stalls in the way that its argument names, for a minute, so that its stack can be captured. No two functions have the same
// code: the compiler would merge them.

let plain: [String: () throws -> Int] = [
    "order": { Cart().handleOrder() },
    "refund": { Cart().handleRefund() },
    "offer": { Cart().handleOffer() },
    "entry-a": { entryA { Cart().handleOrder() } },
    "entry-b": { entryB { Cart().handleOrder() } },
    "long-way-a": { longWayA() },
    "long-way-b": { longWayB() },
    "first-place": { Cart().twoPlaces(true) },
    "second-place": { Cart().twoPlaces(false) },
    "asleep": { Cart().eitherWay(false) },
    "computing": { Cart().eitherWay(true) },
    "load-int": { load(1) },
    "load-string": { load("a") },
    "getter": { Page().rendered },
    "subscript": { Page()[3] },
    "initializer": { Page(slowly: true).rows },
    "global": { Page.shared },
    "operator": { Page() < Page() ? 1 : 2 },
    "default-argument": { withDefault() },
    "throwing": { try mayFail(false) },
    "deferring": { deferring() },
    "local-one": { withLocal(true) },
    "local-two": { withLocal(false) },
    "route-order": { makeRouter().serve("/order") },
    "route-refund": { makeRouter().serve("/refund") },
    "mapping": { mapping() },
    "sorting": { sorting() },
    "measured": { measured() },
    "measured-elsewhere": { measuredElsewhere() },
    "lazily": { lazily() },
    "nested-closures": { nestedClosures() },
    "generic-int": { describe(1) },
    "generic-string": { describe("a") },
    "store-int": { store([1, 2]) },
    "store-string": { store(["a"]) },
    "box-int": { Box(element: 1).open() },
    "box-string": { Box(element: "a").open() },
    "square": { measure(anyShape(false)) },
    "circle": { measure(anyShape(true)) },
    "some-square": { measureSome(Square()) },
    "dog": { anyAnimal(true).greet() },
    "cat": { anyAnimal(false).greet() },
    "left": { Left().wait() },
    "right": { Right().wait() },
    "cache": { askCache() },
    "walk": { start(3) },
    "walk-deep": { start(40) },
    "walk-order": { walkOrder() },
    "even-6": { parity(6) },
    "even-9": { parity(9) },
    "even-20": { parity(20) },
    "c-direct": { Int(native_c_direct(60)) },
    "c-other": { Int(native_c_other(60)) },
    "cxx-method": { Int(native_cxx_method(60)) },
    "cxx-lambda": { Int(native_cxx_lambda(60)) },
    "cxx-template-int": { Int(native_cxx_template_of_int(60)) },
    "cxx-template-double": { Int(native_cxx_template_of_double(60)) },
    "cxx-constructor": { Int(native_cxx_constructor(60)) },
    "c-callback": { Int(native_call({ _ in Int32(truncatingIfNeeded: Cart().handleOrder()) }, 1)) },
]

let asynchronous: [String: @Sendable () async -> Int] = [
    "async-order": { await order() },
    "async-refund": { await refund() },
    "async-order-later": { await orderLater() },
    "async-order-twice": { await orderTwice() },
    "async-generic-int": { await generic(1) },
    "async-generic-string": { await generic("a") },
    "actor": { await Stock().take() },
    "actor-later": { await Stock().takeLater() },
    "async-closure": { await inClosure() },
    "async-child": { await inChild() },
    "async-group": { await inGroup() },
    "async-deep-2": { await deepAsync(2) },
    "async-deep-20": { await deepAsync(20) },
    "async-remote": { await callRemote(anyRemote()) },
]

/// The pause keeps the printing off the stack when the waiting reader captures it.
func announce() {
    print("READY")
    fflush(stdout)
    _ = poll(nil, 0, 100)
}

let name = CommandLine.arguments.dropFirst().first ?? ""
if name == "--list" {
    print("READY")
    print((plain.keys.sorted() + asynchronous.keys.sorted()).joined(separator: "\n"))
} else if let work = plain[name] {
    announce()
    print(try work())
} else if let work = asynchronous[name] {
    announce()
    print(await work())
} else {
    print("no such fault")
}
