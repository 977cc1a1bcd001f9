import CWaits
import Dispatch
import Foundation
import Glibc
import StallMonitor
import StallMonitorLoops

/// The time that the hooks of `StallMonitorLoops` add to a call. Short rounds alternate with rounds of the C library's own
/// function, before a monitor starts and while one runs.
///
/// The result is the minimum of many short rounds, on one processor:
/// the additional time of a busy machine is in the other rounds.
@main
struct WaitCosts {
    private static let rounds = 400
    private static let calls: Int32 = 2_000

    static func main() {
        wait_confine(0)
        print("state             call                     plain ns  hooked ns  more ns")
        measure("no monitor", [WAIT_LOOK, WAIT_TURN, WAIT_READY, WAIT_DISPATCH])
        let queue = DispatchQueue(label: "another")
        let reports = directory
        defer { try? FileManager.default.removeItem(atPath: reports) }
        let monitor = StallMonitor.start(.init(directory: reports), watching: [.everyLoop, .queue(queue)])
        // The loop is found at its second wait, and registered a moment later.
        _ = wait_cost(WAIT_READY, false, 10)
        usleep(100_000)
        measure("watched", [WAIT_LOOK, WAIT_TURN, WAIT_READY])
        measure("queues watched", [WAIT_DISPATCH])
        monitor.stop()
    }

    private static func measure(_ state: String, _ calls: [wait_call]) {
        for call in calls {
            var (plain, hooked) = (Double.infinity, Double.infinity)
            for _ in 0..<rounds {
                plain = min(plain, wait_cost(call, true, Self.calls))
                hooked = min(hooked, wait_cost(call, false, Self.calls))
            }
            print(line([state, name(call)], [plain, hooked, hooked - plain]))
        }
    }

    private static func name(_ call: wait_call) -> String {
        switch call {
        case WAIT_LOOK: "epoll_wait, not waiting"
        case WAIT_TURN: "epoll_wait, a turn"
        case WAIT_READY: "epoll_wait, ready"
        default: "dispatch_async_f"
        }
    }

    private static func line(_ words: [String], _ figures: [Double]) -> String {
        let columns = zip(words, [18, 23]).map { $0 + String(repeating: " ", count: max(0, $1 - $0.count)) }
        return columns.joined()
            + figures.map { figure in
                let text = "\((figure * 10).rounded() / 10)"
                return String(repeating: " ", count: max(1, 10 - text.count)) + text
            }.joined()
    }

    /// A new one, of this run only.
    private static var directory: String {
        var template = Array("/tmp/wait-costs.XXXXXX".utf8CString)
        guard let path = unsafe mkdtemp(&template) else { fatalError("mkdtemp: errno \(errno)") }
        return unsafe String(cString: path)
    }
}
