import CMonitorShims
import Glibc
package import StallReports

extension StallReport.Socket {
    /// The socket behind a descriptor, if that is still the one that was seen when it has been asked. It may wait: see
    /// `monitor_describe_socket`.
    static func describe(_ sighting: DescriptorSighting) -> Self? {
        var found = monitor_socket()
        guard sighting.isStillThere, let (number, isDuplicate) = sighting.borrowed() else { return nil }
        let error = unsafe monitor_describe_socket(number, &found)
        if isDuplicate { close(number) }
        guard error == 0, sighting.isStillThere else { return nil }
        var socket = Self(family: familyName(found))
        socket.local = unsafe withUnsafeBytes(of: found.local) {
            name(unsafe Array($0.prefix(Int(found.local_length))))
        }
        socket.peer = unsafe withUnsafeBytes(of: found.peer) { name(unsafe Array($0.prefix(Int(found.peer_length)))) }
        if found.has_tcp { socket.take(found) }
        if found.peer_process > 0 { socket.peerProcess = .named(found.peer_process) }
        return socket
    }

    private mutating func take(_ found: monitor_socket) {
        state = Self.states.indices.contains(Int(found.tcp_state)) ? Self.states[Int(found.tcp_state)] : nil
        guard state == "established" || state == "syn_sent" || state == "close_wait" else { return }
        silentNs = state == "syn_sent" ? nil : Int64(found.silent_ms) * 1_000_000
        retransmits = Int(found.retransmits)
        unacknowledged = Int(found.unacknowledged)
    }

    private static func name(_ bytes: [UInt8]) -> String? {
        SocketAddress(bytes)?.text
    }

    private static func familyName(_ found: monitor_socket) -> String {
        let six = found.family == AF_INET6 ? "6" : ""
        switch (found.family, found.protocol) {
        case (AF_INET, 6), (AF_INET6, 6): return "tcp" + six
        case (AF_INET, 17), (AF_INET6, 17): return "udp" + six
        case (AF_UNIX, _): return "unix"
        case (16, _): return "netlink"
        case (40, _): return "vsock"
        default: return "family \(found.family)"
        }
    }

    /// By the kernel's numbers (`include/net/tcp_states.h`).
    private static let states: [String?] = [
        nil, "established", "syn_sent", "syn_recv", "fin_wait1", "fin_wait2", "time_wait", "close", "close_wait",
        "last_ack", "listen", "closing", "new_syn_recv",
    ]
}

extension DescriptorSighting {
    /// Whether the number stands for what it stood for.
    var isStillThere: Bool { link != nil && Self.link(of: number, in: process) == link }

    /// A descriptor of ours for the same thing: the number itself, or a duplicate of another process's, which is the caller's to close.
    fileprivate func borrowed() -> (number: Int32, isDuplicate: Bool)? {
        guard let other = process.otherID else { return (number, false) }
        let duplicate = monitor_duplicate_descriptor(other, number)
        return duplicate >= 0 ? (duplicate, true) : nil
    }
}

extension StallReport.ProcessName {
    /// A process with its name, as far as it is there.
    package static func named(_ pid: Int32) -> Self {
        Self(pid: pid, name: readSmallFile("/proc/\(pid)/comm").map { String($0.prefix { $0 != "\n" }) })
    }
}
