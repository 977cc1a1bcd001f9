/// One engine's loop as a script sees it. Made on the loop's thread; told what to do by that thread, and by the helper's while the
/// loop's waits for it. What happens it tells its `Player`.
protocol LoopUnderTest: AnyObject {
    func add(_ item: Item, to place: Place)
    func remove(_ item: Item, from place: Place)
    func contains(_ item: Item, in place: Place) -> Bool
    func invalidate(_ item: Item)
    func isValid(_ item: Item) -> Bool

    func signal(_ source: Int)
    func isSignalled(_ source: Int) -> Bool

    /// Dates are nanoseconds on the simulated clock.
    func setFireDate(of timer: Int, to date: UInt64)
    func fireDate(of timer: Int) -> UInt64
    /// Nil if the mode has no timer.
    func earliestFireDate(in place: Place) -> UInt64?

    /// Without a wake-up (R24).
    func enqueue(for places: [Place], _ body: @escaping @Sendable () -> Void)
    func addCommonMode(_ place: Place)
    func stop()
    func wake()
    /// Nil: for ever. The result is CFRunLoop's number.
    func run(_ place: Place, for timeout: UInt64?, returnAfterSource: Bool) -> Int32
    func runForEver()
    var currentMode: Place? { get }
    var isWaiting: Bool { get }
}

enum Engine: String, CaseIterable, Sendable {
    case kit
    case foundation
}

extension Place {
    /// The name, apart from those that each engine has for the default mode and the common ones.
    var name: String {
        switch self {
        case .mode(let index): "mode\(index)"
        case .common: "common"
        }
    }
}
