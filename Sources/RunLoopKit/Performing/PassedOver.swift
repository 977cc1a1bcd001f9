/// How much of a queue, from its head, has been looked through in vain for one mode. Only what came since must be looked at, so that
/// what is parked for a mode that does not run costs nothing in the turns of another.
///
/// Good as long as nothing is taken out of that part, and no mode becomes common.
struct PassedOver: Sendable {
    /// -1 if none.
    private var modeIndex = -1
    private var count = 0

    /// How many need not be looked at for a mode.
    func count(for mode: LoopMode) -> Int { modeIndex == mode.index ? count : 0 }

    mutating func note(_ count: Int, for mode: LoopMode) {
        modeIndex = mode.index
        self.count = count
    }

    mutating func forget() { modeIndex = -1 }
}
