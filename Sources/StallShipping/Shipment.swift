internal import StallReports

/// One thing to send: a version of a stall's report, or of a run's record.
struct Shipment: Hashable {
    let id: ULID
    let version: Version
    /// Where its file is.
    let directory: String

    /// What was sent of something. A later version comes in the place of an earlier one, never the other way round.
    enum Version: Hashable, Comparable {
        /// While it lasts.
        case ongoing
        case ended
        /// A run's counts, by the time that they were true, in nanoseconds since 1970.
        case counted(Int64)
    }
}

/// What is known and not sent, the oldest first.
struct ShipmentQueue {
    /// What is made of so many files is kept until it is sent; the others are read again.
    private static let madeLimit = 256

    private var order: [ULID] = []
    private var known: [ULID: Shipment] = [:]
    private var made: [ULID: [UInt8]] = [:]

    var count: Int { known.count }

    /// A later version takes the place of the one that waits.
    ///
    /// - Parameter bytes: what is sent of it, if it is at hand.
    mutating func add(_ shipment: Shipment, _ bytes: [UInt8]?) {
        let waiting = known[shipment.id]
        if let waiting, waiting.version >= shipment.version { return }
        if waiting == nil { order.append(shipment.id) }
        known[shipment.id] = shipment
        made[shipment.id] = made.count < Self.madeLimit ? bytes : nil
    }

    /// The first of them. They stay until they are removed.
    func first(_ limit: Int) -> [Shipment] { Array(order.lazy.compactMap { known[$0] }.prefix(limit)) }

    /// What is sent of it, if that was kept.
    func bytes(of shipment: Shipment) -> [UInt8]? { known[shipment.id] == shipment ? made[shipment.id] : nil }

    /// What was sent, or will never be. A later version that has come meanwhile stays.
    mutating func remove(_ shipments: [Shipment]) {
        for shipment in shipments where known[shipment.id] == shipment {
            known[shipment.id] = nil
            made[shipment.id] = nil
        }
        // An id that comes again stands at the end, and must not stand before that as well.
        order.removeAll { known[$0] == nil }
    }

    /// Those of them that still wait come last.
    mutating func moveToEnd(_ shipments: [Shipment]) {
        let moved = Set(shipments.map(\.id))
        guard !moved.isEmpty else { return }
        order = order.filter { !moved.contains($0) } + order.filter(moved.contains)
    }
}
