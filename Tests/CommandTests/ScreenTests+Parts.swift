import StallGate
import StallReading
import StallReports

@testable import stall_monitor

// What the screens of top, gate and sample show.

extension ScreenTests {
    /// The screen after some key presses.
    static func top(_ keys: KeyPress..., width: Int, height: Int = 16) -> [StyledText] {
        var content = TopContent(snapshot: snapshot)
        content.faults = tally.all(watchedNs: 600_000_000_000, by: .total)
        var state = TopState()
        var screen: TopScreen { TopScreen(state: state, content: content, width: width, height: height, now: now) }
        for key in keys { state.press(key, rows: screen.rows, room: screen.room) }
        state.settle(screen.rows)
        return screen.lines
    }

    /// One process with a stall, one idle, one stopped, one killed.
    private static var snapshot: LiveSnapshot {
        let states: [(LiveSnapshot.State, String?)] = [
            (.stalled, "S"), (.watching, "S"), (.watching, "T"), (.dead, nil),
        ]
        let rows = states.enumerated().map { index, state in
            let number = Int32(4711 + index)
            var row = LiveSnapshot.Row(state: state.0, record: record(number), stalls: [])
            row.kernelState = state.1
            if state.0 == .dead { row.end = .init(cause: .killedOrCrashed, summary: "Something ended it.") }
            if state.0 == .stalled { row.stalls = [stall(reports[1])] }
            return row
        }
        return LiveSnapshot(at: now, processes: rows)
    }

    private static func record(_ number: Int32) -> LiveRecord {
        LiveRecord(
            run: ULID(rawValue: UInt128(number) << 80),
            writer: .init(
                host: .init(name: "web1"),
                service: .init(name: number == 4713 ? "a service with a long name" : "shop", version: "1.2"),
                process: .init(pid: number),
                startedAt: Sample.start,
                monitorVersion: "0.1.0",
                memory: nil
            ),
            status: .init(updatedAt: now.advanced(byNanoseconds: -20_000_000_000), watched: 3)
        )
    }

    private static func stall(_ report: StallReport) -> LiveSnapshot.Stall {
        let live = LiveStall(
            report: report.id,
            state: .ongoing,
            rule: report.rule,
            watched: report.watched,
            watch: 1,
            startedAt: report.startedAt,
            startedMonotonicNs: 1,
            detectedAt: report.detectedAt,
            lastSeenAt: report.startedAt.advanced(byNanoseconds: report.durationNs),
            lastSeenMonotonicNs: 1 + UInt64(report.durationNs),
            durationNs: report.durationNs,
            durationMinNs: report.durationNs,
            durationMaxNs: report.durationNs
        )
        return .init(live: live, severity: .critical, verdict: .waiting, culprit: "shop.Cart.total() -> Swift.Int")
    }

    /// Over budget, with one exempt stall and one that is too long.
    static func gate(_ width: Int) -> [StyledText] {
        let budget = Budget(maxStalls: 2, maxDurationNs: 500_000_000)
        return JudgeOptions.lines(of: Gate.judge(.success(watched(reports)), by: budget), width: width)
    }

    static var sample: SampleDocument {
        let names = [
            "__epoll_wait", "shop.EventLoop.wait(until:) async throws -> Swift.Bool", "shop.Server.main()", "main",
        ]
        let frames = names.map { StallReport.Frame(address: 1, function: $0) }
        return SampleDocument(
            process: .init(id: 4711, name: "shop", executable: "/srv/shop/releases/1.2/bin/shop"),
            startedAt: Sample.start,
            durationNs: 5_000_000_000,
            intervalNs: 10_000_000,
            samples: 480,
            missed: 20,
            ended: .complete,
            stacks: [
                .init(
                    count: 480,
                    threads: [.init(thread: Sample.thread, count: 480)],
                    method: "stopped",
                    heldNs: 48_000_000,
                    complete: true,
                    frames: frames
                )
            ],
            failures: [],
            modules: [],
            cost: .init(
                stops: 480,
                heldNs: 48_000_000,
                longestHeldNs: 1_200_000,
                waitedNs: 3_000_000,
                callsRestarted: 2,
                stopsGivenUp: 1,
                samplerCPUNs: 120_000_000
            )
        )
    }
}
