/// The loop of one engine, as a script uses it. Created on the loop's thread; called by that thread, and by the helper's thread
/// while the loop's thread waits for it. It notifies its `Player` of each event.
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
    /// Nil means forever. The result is CFRunLoop's number.
    func run(_ place: Place, for timeout: UInt64?, returnAfterSource: Bool) -> Int32
    func runForEver()
    /// Removes the items that the player has added for itself.
    func end()
    var currentMode: Place? { get }
    var isWaiting: Bool { get }
}

enum Engine: String, CaseIterable, Sendable {
    case kit
    case foundation
}

extension Place {
    /// The name of a mode; all but the default mode have a suffix. A loop that plays several scripts has separate modes for each.
    func name(_ suffix: String) -> String {
        switch self {
        case .mode(0): "default"
        case .mode(let index): "mode\(index)\(suffix)"
        case .common: "common"
        }
    }
}
