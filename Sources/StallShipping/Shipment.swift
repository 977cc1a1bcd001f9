internal import StallReports

/// One item to send: a version of a stall's report, or of a run's record.
struct Shipment: Hashable {
    let id: ULID
    let version: Version
    /// The directory of its file.
    let directory: String

    /// The version that was sent. A later version replaces an earlier one, never the other way round.
    enum Version: Hashable, Comparable {
        /// While the stall lasts.
        case ongoing
        case ended
        /// A run's counts, by the time at which they were current, in nanoseconds since 1970.
        case counted(Int64)
    }
}

/// The known shipments that were not sent, oldest first.
struct ShipmentQueue {
    /// The number of encoded shipments kept until they are sent; the files of others are read again.
    private static let madeLimit = 256

    private var order: [ULID] = []
    private var known: [ULID: Shipment] = [:]
    private var made: [ULID: [UInt8]] = [:]

    var count: Int { known.count }

    /// Adds a shipment; a later version replaces a waiting one.
    ///
    /// - Parameter bytes: Its encoded form, if available.
    mutating func add(_ shipment: Shipment, _ bytes: [UInt8]?) {
        let waiting = known[shipment.id]
        if let waiting, waiting.version >= shipment.version { return }
        if waiting == nil { order.append(shipment.id) }
        known[shipment.id] = shipment
        made[shipment.id] = made.count < Self.madeLimit ? bytes : nil
    }

    /// The first shipments. They stay until they are removed.
    func first(_ limit: Int) -> [Shipment] { Array(order.lazy.compactMap { known[$0] }.prefix(limit)) }

    /// Its encoded form, if that was kept.
    func bytes(of shipment: Shipment) -> [UInt8]? { known[shipment.id] == shipment ? made[shipment.id] : nil }

    /// Removes shipments that were sent, or never will be. A later version that was added in the meantime is kept.
    mutating func remove(_ shipments: [Shipment]) {
        for shipment in shipments where known[shipment.id] == shipment {
            known[shipment.id] = nil
            made[shipment.id] = nil
        }
        // An id that is added again is appended at the end, and must not also be at its former position.
        order.removeAll { known[$0] == nil }
    }

    /// Moves those that are still waiting to the end.
    mutating func moveToEnd(_ shipments: [Shipment]) {
        let moved = Set(shipments.map(\.id))
        guard !moved.isEmpty else { return }
        order = order.filter { !moved.contains($0) } + order.filter(moved.contains)
    }
}
