extension StallReport {
    /// The clients that waited for the loop when the stall was detected, counted once: clients of its connections, as far as
    /// the kernel knows them. A lower bound: requests that were read before the stall and are not answered yet are not visible.
    public struct Victims: Codable, Hashable, Sendable {
        /// Accepted connections with unread data, plus connections not accepted yet.
        public var clients: Int64
        /// Accepted connections with unread data.
        public var unread: Int64
        /// The total unread bytes.
        public var unreadBytes: Int64
        /// Connections that wait to be accepted.
        public var unaccepted: Int64
        /// The number of connections and listeners checked: all of the loop's, unless there are very many.
        public var sockets: Int64

        /// `clients` is the sum. Nothing is checked.
        public init(unread: Int64, unreadBytes: Int64, unaccepted: Int64, sockets: Int64) {
            clients = unread.addingSaturated(unaccepted)
            (self.unread, self.unreadBytes) = (unread, unreadBytes)
            (self.unaccepted, self.sockets) = (unaccepted, sockets)
        }

        private enum CodingKeys: String, CodingKey {
            case clients, unread, unaccepted, sockets
            case unreadBytes = "unread_bytes"
        }
    }
}
