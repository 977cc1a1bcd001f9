import RunLoopKit
import StackCapture
import StallDiagnosis
import StallMonitor
import StallReports

/// One thread of a watched process, and the loop that it runs, if any. Confined to the watcher's thread.
final class WatchedThread {
    let threadID: Int32
    let files: ThreadFiles
    private var search: LoopFinder
    /// How many looks to skip.
    private var pause = 0
    private var looks = 0
    /// Whether the last look found it running.
    private var wasRunning = false
    private let isMain: Bool
    private(set) var loop: ObservedLoop?
    /// Whether its name may still change: new threads name themselves.
    var isNew: Bool { looks < Self.firstLooks }
    private static let firstLooks = 40
    /// The descriptor for which it waits in turn with other threads, so that nothing can be said about this thread; and whether that is an epoll set.
    private var shared: (descriptor: Int32, isSet: Bool)?
    var sharesItsDescriptor: Bool { shared != nil }

    /// Nil if the thread has ended.
    init?(threadID: Int32, ofProcess processID: Int32) {
        guard let files = ThreadFiles(threadID: threadID, ofProcess: processID) else { return nil }
        (self.threadID, self.files) = (threadID, files)
        isMain = threadID == processID
        search = LoopFinder(isMainThread: isMain)
    }

    var name: String { files.name }

    /// The outcome of a look.
    enum Outcome {
        case nothing
        /// The thread runs a loop.
        case foundLoop
        /// The thread has ended, or its loop. If the thread lives on, the next scan finds it again.
        case ended
    }

    /// How many looks to skip after so many, while no loop is known.
    ///
    /// - Parameters:
    ///   - mayHaveLoop: Whether it was found where a loop would wait. A busy loop rests so seldom that few looks find it at rest again.
    ///   - isBusyMain: Whether it is the main thread and was running. On a busy machine forty looks may find a loop always running, and a process
    ///     has only one main thread, so these looks cost little.
    static func pause(afterLooks looks: Int, mayHaveLoop: Bool, isBusyMain: Bool) -> Int {
        looks < firstLooks || mayHaveLoop || isBusyMain ? 0 : 19
    }

    /// Looks at the thread. While it has no known loop, this happens less often after some time.
    func look(_ context: WatchContext) -> Outcome {
        if let loop { return loop.look(files, &search, context) ? .nothing : .ended }
        guard pause == 0 else {
            pause -= 1
            return .nothing
        }
        looks += 1
        let mayHaveLoop = search.likelyDescriptor != nil
        pause = Self.pause(afterLooks: looks, mayHaveLoop: mayHaveLoop, isBusyMain: wasRunning && isMain)
        let time = MonotonicInstant.now
        guard let schedule = files.readSchedule() else { return .ended }
        if let shared {
            // Another thread may get the number for a loop of its own.
            if shared.isSet, files.hasClosed(epollSet: shared.descriptor) { self.shared = nil }
            return .nothing
        }
        wasRunning = false
        guard search.needsPosition(schedule) else { return .nothing }
        guard let position = files.readPosition() else { return .nothing }
        wasRunning = position == .running
        let reading = LoopFinder.Reading(position: position, schedule: schedule, time: time)
        let found = search.note(reading) { context.isOfLoop($0, files) }
        guard let place = found else { return .nothing }
        // It may have got its name after it was first seen.
        files.readNameAgain()
        loop = ObservedLoop(threadID: threadID, label: name, place: place, at: time, context)
        return .foundLoop
    }

    /// Where the thread is now.
    var present: ThreadPosition? { files.readPosition() }

    /// Why it is unknown whether the thread runs a loop, in a few words: it has never rested so far, or it waits in a way that
    /// both loops and clients do. Nil if it runs a known loop, or waits for something else.
    var doubtful: String? {
        guard loop == nil, !sharesItsDescriptor else { return nil }
        if present == .running { return "running" }
        return pollCall.map { SystemCall(number: $0, arguments: []).description }
    }

    /// Whether it waits for a list of descriptors, or did when it was found at one place again.
    var polls: Bool { pollCall != nil }

    /// Whether it was found so at one place again.
    var hasPolled: Bool { search.polledBy != nil }

    /// A loop of GLib that is in a callback now has waited so before.
    private var pollCall: Int? {
        present?.wait.flatMap { WaitCalls.onList.contains($0.call) ? $0.call : nil } ?? search.polledBy
    }

    var descriptor: Int32? { shared?.descriptor ?? search.likelyDescriptor }
    var loopDescriptor: Int32? { search.descriptor }

    /// Gives up on this thread: several threads take turns to wait for its descriptor.
    func giveUp(_ context: WatchContext) {
        loop?.release(as: .abandoned, context)
        loop = nil
        // Later it stays known, so that the next thread that waits there is not taken for the only one.
        shared = shared ?? search.likelyDescriptor.map { ($0, search.epollSet != nil) }
        search.forget()
    }
}

extension WatchContext {
    func isOfLoop(_ place: WaitPlace, _ files: ThreadFiles) -> Bool {
        takesPollsForLoops || process.isOfLoop(place, files)
    }
}

extension OutsideProcess {
    /// Whether a thread polls there for descriptors that a loop would poll. False if it no longer sleeps there.
    fileprivate func isOfLoop(_ place: WaitPlace, _ files: ThreadFiles) -> Bool {
        guard let call = files.readCall(), call.number == place.call, call.arguments.first == UInt(place.argument)
        else {
            return false
        }
        let polled = polled(in: call)
        return files.readCall() == call && polled.isOfLoop
    }
}
