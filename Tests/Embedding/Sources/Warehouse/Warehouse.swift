import Glibc
import StallMonitor
import StallMonitorLoops

/// A server as many containers have it: Swift's libraries are part of the executable, and its symbols are stripped.
@main struct Warehouse {
    static func main() async {
        let monitor = StallMonitor.start(watching: .everything)
        defer { monitor.stop() }
        // More tasks than workers: until the first one returns, no worker is free.
        await withTaskGroup { group in
            for _ in 0...sysconf(Int32(_SC_NPROCESSORS_CONF)) { group.addTask { countShelves() } }
        }
    }
}

/// Private: a program with Swift's libraries exports the names of its other functions, which then survive `strip`.
@inline(never) private func countShelves() { usleep(1_000_000) }
