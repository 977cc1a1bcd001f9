import CPeers

// MARK: - Messages

extension Catalogue {
    static let socketPair = "floor: socket pair"

    static let requests = Workload(
        "port-requests",
        "A request of 16 bytes and its reply, between two threads",
        per: "round trip",
        1_000,
        rounds: 101
    )
    .with(ours) { Ours.requests($0, size: 16) }
    .with(socketPair) { Outcome(floor_message_trips(UInt64($0), 16)) }

    static let messageTrips = Workload(
        "port-trips",
        "A message of 16 bytes there, and one back, between two threads",
        per: "round trip",
        1_000,
        rounds: 101
    )
    .with(ours) { Ours.messageTrips($0, size: 16) }
    .with(socketPair) { Outcome(floor_message_trips(UInt64($0), 16)) }

    /// Example: port-flood-16.
    static func messageFloodName(_ size: Int) -> String { "port-flood-\(size)" }

    static func messageFlood(of size: Int) -> Workload {
        Workload(
            messageFloodName(size),
            "Messages of \(size.grouped) bytes from one thread to another, as fast as they are taken",
            per: "message",
            size < 10_000 ? 10_000 : 2_000,
            rounds: 51
        )
        .carrying(size)
        .with(ours) { Ours.messageFlood($0, size: size) }
        .with(socketPair) { Outcome(floor_message_flood(UInt64($0), UInt64(size))) }
    }
}
