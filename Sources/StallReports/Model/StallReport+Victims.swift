extension StallReport {
    /// Who waited for the loop when the stall was detected, counted once: clients whose connections it serves, as far as the kernel knows of
    /// them. A lower bound: what was read before the stall and is not answered yet shows nowhere.
    public struct Victims: Codable, Hashable, Sendable {
        /// Of accepted connections those with something unread, and connections not accepted yet.
        public var clients: Int64
        /// Accepted connections with something unread.
        public var unread: Int64
        /// How much that is, bytes.
        public var unreadBytes: Int64
        /// Connections that wait to be accepted.
        public var unaccepted: Int64
        /// Connections and listeners that were looked at: all of the loop's, unless there are very many.
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
