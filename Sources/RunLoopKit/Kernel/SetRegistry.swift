internal import Synchronization

/// Which epoll set of this library has which descriptor number.
///
/// When a program closes descriptors that are not its own, several loops make new ones at once, and one of them can get the number that
/// another takes for its set. Whoever gets a number tells the former owner.
enum SetRegistry {
    private struct Owner: Sendable {
        let poller: ObjectIdentifier
        let wakeUp: WakeUp
    }

    private static let owners = Mutex<[Int32: Owner]>([:])

    /// Notes that the kernel has just given the number to a new set of `poller`.
    static func enter(_ number: Int32, of poller: Poller, wakenBy wakeUp: WakeUp) {
        let owner = Owner(poller: ObjectIdentifier(poller), wakeUp: wakeUp)
        let former = owners.withLock { $0.updateValue(owner, forKey: number) }
        former?.wakeUp.loseDescriptors()
    }

    /// Whether the number is still that set's.
    static func has(_ number: Int32, of poller: Poller) -> Bool {
        owners.withLock { $0[number]?.poller == ObjectIdentifier(poller) }
    }

    /// Forgets the set; nil if its number was another's already, else who wakes its loop.
    static func leave(_ number: Int32, of poller: Poller) -> WakeUp? {
        owners.withLock { owners in
            owners[number]?.poller == ObjectIdentifier(poller) ? owners.removeValue(forKey: number)?.wakeUp : nil
        }
    }
}
