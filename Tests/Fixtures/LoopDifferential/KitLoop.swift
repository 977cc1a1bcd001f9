import RunLoopKit

/// This package's engine.
final class KitLoop: LoopUnderTest {
    private let loop = EventRunLoop.current
    private var sources: [EventSource] = []
    private var timers: [EventTimer] = []
    private var observers: [LoopObserver] = []
    private var recorders: [LoopObserver] = []

    private let modes: [EventRunLoop.Mode]

    init(_ player: Player) {
        modes = (0..<Place.modeCount).map { EventRunLoop.Mode(Place.mode($0).name(player.suffix)) }
        let script = player.script
        for (index, source) in script.sources.enumerated() {
            sources.append(
                EventSource(
                    order: source.order,
                    onSchedule: { _, mode in player.scheduled(index, in: mode.name) },
                    onCancel: { _, mode in player.cancelled(index, in: mode.name) },
                    { _ in player.performed(index) }
                )
            )
        }
        for (index, timer) in script.timers.enumerated() {
            let date = MonotonicInstant(nanoseconds: player.date(of: index, timer.first))
            timers.append(
                EventTimer(at: date, every: .milliseconds(timer.interval), order: timer.order) { _ in
                    player.fired(index)
                }
            )
        }
        for (index, observer) in script.observers.enumerated() {
            let activities = EventRunLoop.Activity(rawValue: observer.activities)
            observers.append(
                LoopObserver(activities: activities, order: observer.order, repeats: observer.repeats) { _, activity in
                    player.observed(index, activity.rawValue)
                }
            )
        }
        for mode in 0..<Place.modeCount { record(mode, player) }
    }

    private func record(_ mode: Int, _ player: Player) {
        let activities = EventRunLoop.Activity(rawValue: player.script.recorded)
        let recorder = LoopObserver(activities: activities, order: .min) { _, activity in
            player.recorded(activity.rawValue, mode: mode)
        }
        loop.add(recorder, to: modes[mode])
        recorders.append(recorder)
    }

    func add(_ item: Item, to place: Place) {
        switch item {
        case .source(let index): loop.add(sources[index], to: mode(place))
        case .timer(let index): loop.add(timers[index], to: mode(place))
        case .observer(let index): loop.add(observers[index], to: mode(place))
        }
    }

    func remove(_ item: Item, from place: Place) {
        switch item {
        case .source(let index): loop.remove(sources[index], from: mode(place))
        case .timer(let index): loop.remove(timers[index], from: mode(place))
        case .observer(let index): loop.remove(observers[index], from: mode(place))
        }
    }

    func contains(_ item: Item, in place: Place) -> Bool {
        switch item {
        case .source(let index): loop.contains(sources[index], in: mode(place))
        case .timer(let index): loop.contains(timers[index], in: mode(place))
        case .observer(let index): loop.contains(observers[index], in: mode(place))
        }
    }

    func invalidate(_ item: Item) {
        switch item {
        case .source(let index): sources[index].invalidate()
        case .timer(let index): timers[index].invalidate()
        case .observer(let index): observers[index].invalidate()
        }
    }

    func isValid(_ item: Item) -> Bool {
        switch item {
        case .source(let index): sources[index].isValid
        case .timer(let index): timers[index].isValid
        case .observer(let index): observers[index].isValid
        }
    }

    func signal(_ source: Int) { sources[source].signal() }

    func isSignalled(_ source: Int) -> Bool { sources[source].isSignalled }

    func setFireDate(of timer: Int, to date: UInt64) {
        timers[timer].nextFireDate = MonotonicInstant(nanoseconds: date)
    }

    func fireDate(of timer: Int) -> UInt64 { timers[timer].nextFireDate.nanoseconds }

    func earliestFireDate(in place: Place) -> UInt64? { loop.nextTimerFireDate(in: mode(place))?.nanoseconds }

    func enqueue(for places: [Place], _ body: @escaping @Sendable () -> Void) {
        if places.count == 1 {
            loop.perform(in: mode(places[0]), wake: false, body)
        } else {
            loop.perform(in: places.map(mode), wake: false, body)
        }
    }

    func addCommonMode(_ place: Place) { loop.addCommonMode(mode(place)) }

    func stop() { loop.stop() }

    func wake() { loop.wakeUp() }

    func run(_ place: Place, for timeout: UInt64?, returnAfterSource: Bool) -> Int32 {
        let duration: Duration? = timeout.map { .nanoseconds(Int64($0)) }
        return loop.run(mode: mode(place), for: duration, returnAfterSourceHandled: returnAfterSource).rawValue
    }

    func runForEver() { loop.run() }

    func end() { recorders.forEach { $0.invalidate() } }

    var currentMode: Place? { loop.currentMode.flatMap { modes.firstIndex(of: $0) }.map { .mode($0) } }

    var isWaiting: Bool { loop.isWaiting }

    private func mode(_ place: Place) -> EventRunLoop.Mode {
        switch place {
        case .mode(let index) where index >= 0: modes[index]
        default: .common
        }
    }
}
