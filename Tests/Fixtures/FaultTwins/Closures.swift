import Glibc

/// Like a library: it stores handlers, and calls them later.
final class Router {
    private var handlers: [String: () -> Int] = [:]

    func on(_ path: String, _ handler: @escaping () -> Int) { handlers[path] = handler }
    @inline(never) func serve(_ path: String) -> Int { (handlers[path]?() ?? 0) &+ sink }
}

func makeRouter() -> Router {
    let router = Router()
    router.on("/order") {
        sleep(69)
        sink += 1
        return sink
    }
    router.on("/refund") {
        sleep(70)
        sink += 2
        return sink
    }
    return router
}

func mapping() -> Int {
    [1, 2].map { value in
        sleep(71)
        sink += value
        return sink
    }.reduce(0, +)
}

func sorting() -> Int {
    [3, 1, 2].sorted { left, right in
        sleep(72)
        sink += left
        return left < right
    }.count
}

/// A function of the program between a closure and the function that contains the closure.
func timed(_ work: () -> Int) -> Int {
    let start = time(nil)
    return work() &+ Int(time(nil) - start)
}

func measured() -> Int {
    let rows = sink
    return timed {
        sleep(73)
        sink += rows
        return sink
    } &+ sink
}

func measuredElsewhere() -> Int {
    let rows = sink
    return timed {
        sleep(74)
        sink += rows &* 2
        return sink
    } &+ sink
}

func orElse(_ value: Int?, _ other: @autoclosure () -> Int) -> Int { (value ?? other()) &+ sink }
func slowOther() -> Int {
    sleep(75)
    sink += 1
    return sink
}
func lazily() -> Int { orElse(sink > 100 ? 1 : nil, slowOther()) &+ sink }

func nestedClosures() -> Int {
    [1].map { one in
        [one].map { two in
            sleep(76)
            sink += two
            return sink
        }.count
    }.count
}
