import CPeers

/// Every workload, with all peers that support it. Ours is the first.
enum Catalogue {
    static let ours = "RunLoopKit"
    static let foundation = "Foundation"

    static let all: [Workload] =
        [turns(on: .mainThread), turns(on: .otherThread), roundTrips, mainQueue, blocks]
        + [oneShots, randomTimers] + [0, 1_000, 100_000, 1_000_000].map(fires)
        + [10, 10_000].map(oneBusy) + [allBusy, requests, messageTrips] + [16, 4_000, 65_536].map(messageFlood)
        + [transitions, heartbeats, monitoredTurns, monitoredRoundTrips]

    private static func turns(on place: Workload.Place) -> Workload {
        let (name, title) =
            place == .mainThread ? ("turns-main", "the main thread") : ("turns-thread", "another thread")
        return Workload(
            name,
            "A turn whose work asks for the next, on \(title)",
            per: "turn",
            4_000,
            rounds: 301,
            on: place
        )
        .with(ours) { Ours.turns($0) }
        .with(foundation, 1_000, c: cf_turns)
        .with("libuv, idle", c: uv_idle_turns)
        .with("libuv, async", c: uv_async_turns)
        .with("GLib, idle", 2_000, c: glib_turns)
        .with("libevent, active", c: event_turns)
        .with("SwiftNIO, execute") { NIO.turns($0) }
        .with("floor: epoll_wait(0)", c: floor_turns)
    }

    private static let roundTrips = Workload(
        "round-trips",
        "Two loops on two threads, each asleep until the other wakes it",
        per: "round trip",
        500,
        rounds: 301
    )
    .with(ours) { Ours.roundTripsBySource($0) }
    .with("RunLoopKit, perform") { Ours.roundTripsByBlock($0) }
    .with(foundation, c: cf_round_trips)
    .with("libuv, async", c: uv_round_trips)
    .with("GLib, wakeup", c: glib_round_trips)
    .with("libevent, active", c: event_round_trips)
    .with("SwiftNIO, execute") { NIO.roundTrips($0) }
    .with("floor: epoll", c: floor_epoll_round_trips)
    .with("floor: futex", c: floor_futex_round_trips)

    private static let mainQueue = Workload(
        "main-queue",
        "Through DispatchQueue.main and back, from another thread",
        per: "round trip",
        500,
        rounds: 301,
        on: .mainThread
    )
    .with(ours) { MainQueue.byOurs($0) }
    .with(foundation) { MainQueue.byFoundation($0) }
    .with("floor: epoll") { MainQueue.byFloor($0) }

    private static let blocks = Workload(
        "blocks",
        "Four threads hand work to one loop",
        per: "block",
        100_000,
        rounds: 31
    )
    .with(ours) { Ours.blocks($0) }
    .with(foundation, 20_000) { FoundationLoop.blocks($0) }
    .with("libuv, async and queue", c: uv_blocks)
    .with("GLib, invoke", 20_000, c: glib_blocks)
    .with("SwiftNIO, execute") { NIO.blocks($0) }
}

// MARK: - Timers

extension Catalogue {
    private static let oneShots = Workload(
        "one-shots",
        "100,000 one-shots: created, added, fired, freed",
        per: "timer",
        100_000,
        rounds: 21
    )
    .with(ours) { Ours.oneShots($0) }
    .with(foundation, rounds: 1, c: cf_one_shots)
    .with("libuv", c: uv_one_shots)
    .with("GLib", c: glib_one_shots)
    .with("libevent", c: event_one_shots)
    .with("SwiftNIO") { NIO.oneShots($0) }

    /// Foundation moves all entries after a new timer, and SwiftNIO
    /// searches all timers to cancel one: a million would take minutes.
    private static let randomTimers = Workload(
        "random-timers",
        "A million timers in random order, half of them cancelled, the others fired",
        per: "timer",
        1_000_000,
        rounds: 3
    )
    .with(ours) { Ours.randomTimers($0) }
    .with("Foundation, of 10,000", 10_000, rounds: 1, c: cf_random_timers)
    .with("libuv", c: uv_random_timers)
    .with("GLib", c: glib_random_timers)
    .with("libevent", c: event_random_timers)
    .with("SwiftNIO, of 10,000", 10_000, rounds: 1) { NIO.randomTimers($0) }

    /// Example: fires-100k.
    private static func firesName(_ idle: Int) -> String { "fires-" + idle.abbreviated }

    private static func fires(beside idle: Int) -> Workload {
        // A round creates and removes all idle timers.
        let rounds = idle < 10_000 ? 51 : idle < 1_000_000 ? 11 : 3
        let slow = idle < 10_000 ? 2_000 : idle < 1_000_000 ? 200 : 20
        return Workload(
            firesName(idle),
            "A timer that is always due, beside \(idle.grouped) that are not",
            per: "fire",
            10_000,
            rounds: rounds
        )
        .with(ours) { Ours.fires($0, idle: idle) }
        .with(foundation, slow, rounds: idle < 1_000_000 ? nil : 1) { Outcome(cf_fires(UInt64($0), UInt64(idle))) }
        .with("libuv (many a turn)") { Outcome(uv_fires(UInt64($0), UInt64(idle))) }
        .with("GLib", slow) { Outcome(glib_fires(UInt64($0), UInt64(idle))) }
        .with("libevent") { Outcome(event_fires(UInt64($0), UInt64(idle))) }
        .with("SwiftNIO") { NIO.fires($0, idle: idle) }
    }
}

// MARK: - Descriptors

extension Catalogue {
    private static func oneBusyName(_ count: Int) -> String { "one-busy-" + count.abbreviated }

    private static func oneBusy(of count: Int) -> Workload {
        let slow = count < 1_000 ? 2_000 : 50
        return Workload(
            oneBusyName(count),
            "\(count.grouped) descriptors, one of them busy: read and written in its handler",
            per: "delivery",
            5_000,
            rounds: count < 1_000 ? 51 : 11
        )
        .with(ours) { Ours.oneBusy($0, idle: count - 1) }
        .with("libuv, poll") { Outcome(uv_one_busy(UInt64($0), UInt64(count - 1))) }
        .with("GLib", slow) { Outcome(glib_one_busy(UInt64($0), UInt64(count - 1))) }
        .with("libevent") { Outcome(event_one_busy(UInt64($0), UInt64(count - 1))) }
        .with("floor: epoll") { Outcome(floor_one_busy(UInt64($0), UInt64(count - 1))) }
    }

    private static let allBusy = Workload(
        "all-busy",
        "10,000 descriptors, all ready: each delivered once, and read",
        per: "delivery",
        10_000,
        rounds: 21
    )
    .with(ours) { Ours.allBusy($0) }
    .with("libuv, poll", c: uv_all_busy)
    .with("GLib", c: glib_all_busy)
    .with("libevent", c: event_all_busy)
    .with("floor: epoll", c: floor_all_busy)
}

// MARK: - Being watched

extension Catalogue {
    static let watched = "RunLoopKit, watched"
    static let textbook = "RunLoopKit, textbook monitor"

    private static let transitions = Workload(
        "transitions",
        "What a loop publishes for its watcher",
        per: "transition",
        20_000,
        rounds: 201
    )
    .with(ours) { Monitor.transitions($0, watched: false) }
    .with(watched) { Monitor.transitions($0, watched: true) }

    static let pollingTurn = "a turn that polls"
    static let sleepingTurn = "a turn that sleeps"

    private static let heartbeats = Workload(
        "heartbeats",
        "All that is published in a turn, watched, with its stamps",
        per: "turn",
        10_000,
        rounds: 201
    )
    .with(pollingTurn) { Monitor.pollingTurns($0) }
    .with(sleepingTurn) { Monitor.sleepingTurns($0) }

    private static let monitoredRoundTrips = Workload(
        "monitored-trips",
        "Two loops that wake each other, one of them watched in different ways",
        per: "round trip",
        500,
        rounds: 301
    )
    .with(ours) { Ours.roundTripsBySource($0) }
    .with(watched) { Monitor.roundTripsWatched($0) }
    .with(textbook) { Monitor.roundTripsByTheBook($0) }

    private static let monitoredTurns = Workload(
        "monitored-turns",
        "A turn whose work asks for the next, watched in different ways",
        per: "turn",
        4_000,
        rounds: 301
    )
    .with(ours) { Ours.turns($0) }
    .with(watched) { Monitor.turnsWatched($0) }
    .with("RunLoopKit, empty observer") { Monitor.turnsObserved($0) }
    .with(textbook) { Monitor.turnsByTheBook($0) }
    .with(foundation, 1_000, c: cf_turns)
    .with("Foundation, textbook monitor", 1_000) { Monitor.foundationTurnsByTheBook($0) }
}

extension Int {
    /// Example: 100k.
    fileprivate var abbreviated: String {
        self < 1_000 ? "\(self)" : self < 1_000_000 ? "\(self / 1_000)k" : "\(self / 1_000_000)m"
    }

    /// Example: 100,000.
    var grouped: String {
        self < 1_000 ? "\(self)" : (self / 1_000).grouped + "," + String(1_000 + self % 1_000).dropFirst()
    }
}
