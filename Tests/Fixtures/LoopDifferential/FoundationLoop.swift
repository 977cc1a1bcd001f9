import CFoundationRunLoop
// Imported so that the library is linked whose functions the header declares.
import Foundation
import Synchronization

/// Foundation's engine, through its C functions, on a kernel that adds
/// the behaviour that it is known to lack (see `KnownDifference`).
///
/// Its pointers are valid because it owns the objects: they are released in `deinit`, after the loop's thread has ended, and the
/// `Callee`s of their callbacks are kept as long.
final class FoundationLoop: LoopUnderTest {
    let loop: Object
    let player: Player
    let modes: [Object]
    var sources: [Object] = []
    var timers: [Object] = []
    var observers: [Object] = []
    var recorders: [Object] = []
    /// The observers among the common items, in the order in which they were added.
    var commonObservers: [Int] = []
    private var callees: [Callee] = []
    /// The eventfd that wakes the loop.
    let wakeFd: Int32
    /// Modes that earlier scripts made common; they remain common.
    private(set) var foreignModes: [Object] = []
    let mainQueueFd: Int32
    /// A turn has handled a timer although the main queue had work (R36).
    var hasPassedOverMainQueue = false
    /// The kernel's timer of each mode.
    var timerFds: [Int32] = []

    /// What a callback's `info` points to.
    final class Callee {
        let player: Player
        let index: Int

        init(_ player: Player, _ index: Int) {
            self.player = player
            self.index = index
        }
    }

    init(_ player: Player) {
        self.player = player
        mainQueueFd = player.isOnMain ? _dispatch_get_main_queue_handle_4CF() : -1
        let named = (1..<Place.modeCount).map { mode in
            unsafe Object(ref: CFStringCreateWithCString(nil, Place.mode(mode).name(player.suffix), utf8))
        }
        modes = unsafe [Object(ref: kCFRunLoopDefaultMode)] + named
        player.kernel.useArrival(mainQueue: mainQueueFd) { _ in
            -1
        } timed: {
        }
        loop = unsafe Object(ref: CFRunLoopGetCurrent())
        let made = (player.kernel.lastEventfd, player.kernel.lastTimerfd)
        let known =
            player.isOnMain
            ? mainLoopFds.withLock { fds in
                fds = fds ?? made; return fds ?? made
            } : made
        wakeFd = known.0
        timerFds.append(known.1)
        for mode in 0..<Place.modeCount { record(mode) }
        if player.isOnMain {
            foreignModes = mainCommonModes.withLock { $0 }.sorted().map { name in
                unsafe Object(ref: CFStringCreateWithCString(nil, name, utf8))
            }
        }
        makeSources()
        makeTimers()
        makeObservers()
        player.kernel.useArrival(mainQueue: mainQueueFd) { [unowned self] in
            arrival(maySleep: $0)
        } timed: { [unowned player] in
            player.beginTime()
        }
        player.kernel.lookedAtMainQueue = { [unowned self] in noteLook(isReady: $0) }
        player.kernel.drains = { [unowned self] in
            hasPassedOverMainQueue = false
            voidWorkOfThisDrain()
        }
    }

    deinit {
        sources.forEach { $0.release() }
        timers.forEach { $0.release() }
        observers.forEach { $0.release() }
        recorders.forEach { $0.release() }
        modes.dropFirst().forEach { $0.release() }
        foreignModes.forEach { $0.release() }
    }

    func mode(_ place: Place) -> UnsafeRawPointer {
        switch place {
        case .mode(let index): unsafe modes[index].ref
        case .common: unsafe kCFRunLoopCommonModes
        }
    }

    static func name(of mode: UnsafeRawPointer) -> String {
        if unsafe CFEqual(mode, kCFRunLoopDefaultMode) != 0 { return "default" }
        var name = [CChar](repeating: 0, count: 64)
        _ = unsafe CFStringGetCString(mode, &name, name.count, utf8)
        return String(decoding: name.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}

/// kCFStringEncodingUTF8.
private let utf8: UInt32 = 0x0800_0100

/// The main loop's eventfd, and its default mode's timer: created when the first script accesses the loop.
private let mainLoopFds = Mutex<(Int32, Int32)?>(nil)

/// The modes that scripts have made common on the main loop; they remain common.
let mainCommonModes = Mutex<Set<String>>([])

/// A Core Foundation object. Valid until its owner releases it.
@safe struct Object {
    let ref: UnsafeRawPointer

    func release() { unsafe CFRelease(ref) }
}

// MARK: - Making items

extension FoundationLoop {
    private func info(_ index: Int) -> UnsafeMutableRawPointer {
        let callee = Callee(player, index)
        callees.append(callee)
        return unsafe Unmanaged.passUnretained(callee).toOpaque()
    }

    static func callee(_ info: UnsafeMutableRawPointer?) -> Callee {
        guard let info = unsafe info else { preconditionFailure("a callback without its info") }
        return unsafe Unmanaged<Callee>.fromOpaque(info).takeUnretainedValue()
    }

    private func context(_ index: Int) -> cf_item_context {
        unsafe cf_item_context(version: 0, info: info(index), retain: nil, release: nil, copy_description: nil)
    }

    private func makeSources() {
        for (index, source) in player.script.sources.enumerated() {
            var context = unsafe cf_source_context(
                base: context(index),
                equal: nil,
                hash: nil,
                schedule: { info, _, mode in
                    let callee = unsafe FoundationLoop.callee(info)
                    unsafe callee.player.scheduled(callee.index, in: FoundationLoop.name(of: mode))
                },
                cancel: { info, _, mode in
                    let callee = unsafe FoundationLoop.callee(info)
                    unsafe callee.player.cancelled(callee.index, in: FoundationLoop.name(of: mode))
                },
                perform: { info in
                    let callee = unsafe FoundationLoop.callee(info)
                    callee.player.performed(callee.index)
                }
            )
            sources.append(unsafe Object(ref: CFRunLoopSourceCreate(nil, source.order, &context)))
        }
    }

    private func makeTimers() {
        for (index, timer) in player.script.timers.enumerated() {
            var context = unsafe context(index)
            let date = Double(player.date(of: index, timer.first)) / 1e9
            let interval = Double(timer.interval) / 1e3
            let made = unsafe CFRunLoopTimerCreate(
                nil,
                date,
                interval,
                0,
                timer.order,
                { _, info in
                    let callee = unsafe FoundationLoop.callee(info)
                    callee.player.fired(callee.index)
                },
                &context
            )
            timers.append(unsafe Object(ref: made))
        }
    }

    private func makeObservers() {
        for (index, observer) in player.script.observers.enumerated() {
            var context = unsafe context(index)
            let made = unsafe CFRunLoopObserverCreate(
                nil,
                UInt(observer.activities),
                observer.repeats ? 1 : 0,
                observer.order,
                { _, activity, info in
                    let callee = unsafe FoundationLoop.callee(info)
                    callee.player.observed(callee.index, UInt32(activity))
                },
                &context
            )
            observers.append(unsafe Object(ref: made))
        }
    }

    /// Adding the recorder creates the mode, and with it the kernel timer.
    private func record(_ mode: Int) {
        var context = unsafe context(mode)
        let recorder = unsafe CFRunLoopObserverCreate(
            nil,
            UInt(player.script.recorded),
            1,
            .min,
            { _, activity, info in
                let callee = unsafe FoundationLoop.callee(info)
                callee.player.recorded(UInt32(activity), mode: callee.index)
            },
            &context
        )
        unsafe CFRunLoopAddObserver(loop.ref, recorder, modes[mode].ref)
        recorders.append(unsafe Object(ref: recorder))
        if mode > 0 { timerFds.append(player.kernel.lastTimerfd) }
    }
}
